// What every refusal must be: the code that error.proto tables, a sentence that tells what to do,
// and nothing changed.
#ifndef MRD_TESTS_E2E_REFUSAL_H_
#define MRD_TESTS_E2E_REFUSAL_H_

#include "mrd/v1/status.h"
#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {

template <typename Response>
void ExpectRefusal(const Answer<Response>& answer, v1::Reason reason) {
  EXPECT_EQ(answer.reason(), reason) << v1::Reason_Name(answer.reason()) << ", not "
                                     << v1::Reason_Name(reason) << ": " << answer.text();
  EXPECT_EQ(static_cast<int>(answer.status.error_code()), static_cast<int>(CodeOf(reason)));
  EXPECT_FALSE(answer.detail.advice().empty()) << "what to do: " << answer.text();
  EXPECT_NE(answer.status.error_message().find(answer.detail.advice()), std::string::npos)
      << "the message alone says everything";
  if (answer.detail.errno_value() != 0) {
    EXPECT_FALSE(answer.detail.errno_name().empty());
    EXPECT_EQ(answer.detail.errno_name(), ErrnoName(answer.detail.errno_value()));
  }
}

// The limit that a refusal names, in its text too.
template <typename Response>
void ExpectLimit(const Answer<Response>& answer, const std::string& name, uint64_t limit,
                 uint64_t used) {
  EXPECT_NE(answer.detail.limit_name().find(name), std::string::npos) << answer.detail.limit_name();
  EXPECT_EQ(answer.detail.limit(), limit);
  EXPECT_EQ(answer.detail.used(), used);
  EXPECT_NE(answer.status.error_message().find(std::to_string(limit)), std::string::npos)
      << answer.text();
}

// Base: DaemonTest or one made of it.
template <typename Base>
class RefusalTest : public Base {
 protected:
  // Registers, which must be refused for this reason and leave everything as it was. Returns the
  // refusal.
  Answer<v1::RegisterResponse> Refused(RawClient& client, const v1::RegisterRequest& request,
                                       v1::Reason reason) {
    // Packets under way are taken first, so that the call changes nothing by that.
    client.ListLeases();
    EXPECT_TRUE(WaitUntil(
        kPatience, [&] { return client.GetStatus().response.session().buffers() == passed_; }));
    const Holdings before = this->Look();
    auto answer = client.Register(request);
    ExpectRefusal(answer, reason);
    Holdings after = this->Look();
    // A refused descriptor is closed a moment later.
    if (after.fds < before.fds) after.fds = before.fds;
    EXPECT_EQ(after, before);
    return answer;
  }
  // Passes it; Refused waits until so many have arrived.
  uint64_t Pass(RawClient& client, int fd) {
    ++passed_;
    return client.PassFd(fd);
  }

 private:
  uint64_t passed_ = 0;
};

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_REFUSAL_H_
