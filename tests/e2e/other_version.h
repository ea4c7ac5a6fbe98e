// What daemons of other versions (other_version.cc) write, for tests that look for it.
#ifndef MRD_TESTS_E2E_OTHER_VERSION_H_
#define MRD_TESTS_E2E_OTHER_VERSION_H_

namespace mrd::e2e {

// A varint in each message of a record: the version that wrote it.
inline constexpr int kFieldOfOtherVersions = 1000;

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_OTHER_VERSION_H_
