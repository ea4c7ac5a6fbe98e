// A value or an errno.
#ifndef MRD_DAEMON_FABRIC_VERBS_RESULT_H_
#define MRD_DAEMON_FABRIC_VERBS_RESULT_H_

namespace mrd::fabric::verbs {

template <typename T>
struct Result {
  T value = {};
  int error = 0;  // errno; `value` means something only when it is 0.
  bool ok() const { return error == 0; }
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_RESULT_H_
