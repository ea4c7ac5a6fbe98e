// What tests of a fabric need to connect endpoints: one side of a connection, as a broker would
// keep it.
#ifndef MRD_TESTS_FABRIC_PEERS_H_
#define MRD_TESTS_FABRIC_PEERS_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "daemon/fabric/fabric.h"
#include "daemon/mutex.h"

namespace mrd::fabric {

// Waits up to 20 s for `condition` of T under its lock.
class Waitable {
 public:
  template <typename Condition>
  bool WaitFor(Condition condition, std::chrono::milliseconds time = std::chrono::seconds(20)) {
    const auto until = std::chrono::steady_clock::now() + time;
    MutexLock lock(mutex_);
    while (!condition()) {
      if (!changed_.WaitUntil(mutex_, until)) return condition();
    }
    return true;
  }

  template <typename Change>
  void Update(Change change) {
    MutexLock lock(mutex_);
    change();
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
};

// One side: gives the spec and the callback, keeps what comes.
class Side {
 public:
  explicit Side(std::shared_ptr<Domain> domain) : domain_(std::move(domain)) {}

  ConnectionSpec Spec(std::string private_data = "",
                      std::chrono::milliseconds time = std::chrono::seconds(20)) {
    ConnectionSpec spec;
    spec.private_data = std::move(private_data);
    spec.deadline = std::chrono::steady_clock::now() + time;
    spec.domain = [this](const std::string& device) -> absl::StatusOr<std::shared_ptr<Domain>> {
      state_.Update([&] { asked_device_ = device; });
      if (!domain_error_.ok()) return domain_error_;
      return domain_;
    };
    spec.wanted = [this] { return wanted_; };
    spec.left = [this](bool error) {
      state_.Update([&] {
        ++left_calls_;
        left_error_ = error;
      });
    };
    return spec;
  }

  EstablishedCallback Done() {
    return [this](absl::StatusOr<Established> result) {
      state_.Update([&] {
        ++done_calls_;
        result_ = std::move(result);
      });
    };
  }

  void set_wanted(bool wanted) { wanted_ = wanted; }
  void set_domain_error(absl::Status status) { domain_error_ = std::move(status); }

  // Waits for Done's result; the connection stays with this side.
  absl::Status Wait() {
    if (!state_.WaitFor([this] { return result_.has_value(); })) {
      return absl::DeadlineExceededError("no result at all");
    }
    return result_->status();
  }
  bool Idle(std::chrono::milliseconds time) {
    return !state_.WaitFor([this] { return result_.has_value(); }, time);
  }
  bool WaitLeft() {
    return state_.WaitFor([this] { return left_calls_ > 0; });
  }

  Established& established() { return **result_; }
  const ConnectionInfo& info() { return established().connection->info(); }
  void Disconnect() { established().connection.reset(); }

  int done_calls() const { return done_calls_; }
  int left_calls() const { return left_calls_; }
  bool left_error() const { return left_error_; }
  const std::string& asked_device() const { return asked_device_; }

 private:
  const std::shared_ptr<Domain> domain_;
  absl::Status domain_error_;
  bool wanted_ = true;

  Waitable state_;
  int done_calls_ = 0;
  std::optional<absl::StatusOr<Established>> result_;
  int left_calls_ = 0;
  bool left_error_ = false;
  std::string asked_device_;
};

}  // namespace mrd::fabric

#endif  // MRD_TESTS_FABRIC_PEERS_H_
