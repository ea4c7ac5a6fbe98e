// What tests of a fabric need to connect endpoints: one side of a connection, as a broker would
// keep it.
#ifndef MRD_TESTS_FABRIC_PEERS_H_
#define MRD_TESTS_FABRIC_PEERS_H_

#include <atomic>
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

// One side: gives the spec and the callback, keeps what comes. What it gave out may outlive it: an
// attempt that a test leaves unfinished ends with the fabric.
class Side {
 public:
  explicit Side(std::shared_ptr<Domain> domain) : state_(std::make_shared<State>()) {
    state_->domain = std::move(domain);
  }
  ~Side() {
    std::optional<absl::StatusOr<Established>> ended;
    state_->Update([&] {
      state_->domain = nullptr;
      state_->given_up = true;
      ended.swap(state_->result);
    });
  }

  ConnectionSpec Spec(std::string private_data = "",
                      std::chrono::milliseconds time = std::chrono::seconds(20)) {
    ConnectionSpec spec;
    spec.private_data = std::move(private_data);
    spec.deadline = std::chrono::steady_clock::now() + time;
    spec.domain =
        [state = state_](const std::string& device) -> absl::StatusOr<std::shared_ptr<Domain>> {
      absl::StatusOr<std::shared_ptr<Domain>> domain = absl::CancelledError("given up");
      state->Update([&] {
        state->asked_device = device;
        if (!state->domain_error.ok()) {
          domain = state->domain_error;
        } else if (!state->given_up) {
          domain = state->domain;
        }
      });
      return domain;
    };
    spec.wanted = [state = state_] { return state->wanted.load(); };
    spec.left = [state = state_](bool error) {
      state->Update([&] {
        ++state->left_calls;
        state->left_error = error;
      });
    };
    return spec;
  }

  EstablishedCallback Done() {
    return [state = state_](absl::StatusOr<Established> result) {
      state->Update([&] {
        ++state->done_calls;
        if (!state->given_up) state->result = std::move(result);
      });
    };
  }

  void set_wanted(bool wanted) { state_->wanted = wanted; }
  void set_domain_error(absl::Status status) { state_->domain_error = std::move(status); }

  // Waits for Done's result; the connection stays with this side.
  absl::Status Wait() {
    if (!state_->WaitFor([this] { return state_->result.has_value(); })) {
      return absl::DeadlineExceededError("no result at all");
    }
    return state_->result->status();
  }
  // Whether nothing came in that time.
  bool Idle(std::chrono::milliseconds time) {
    return !state_->WaitFor([this] { return state_->result.has_value(); }, time);
  }
  bool WaitLeft() {
    return state_->WaitFor([this] { return state_->left_calls > 0; });
  }

  // After Wait has said OK.
  Established& established() { return **state_->result; }
  const ConnectionInfo& info() { return established().connection->info(); }
  void Disconnect() { established().connection.reset(); }

  int done_calls() const { return state_->done_calls; }
  int left_calls() const { return state_->left_calls; }
  bool left_error() const { return state_->left_error; }
  std::string asked_device() const {
    std::string device;
    state_->Update([&] { device = state_->asked_device; });
    return device;
  }

 private:
  struct State : Waitable {
    std::shared_ptr<Domain> domain;
    absl::Status domain_error;
    std::atomic<bool> wanted = true;
    bool given_up = false;
    std::atomic<int> done_calls = 0;
    std::optional<absl::StatusOr<Established>> result;
    std::atomic<int> left_calls = 0;
    std::atomic<bool> left_error = false;
    std::string asked_device;
  };

  const std::shared_ptr<State> state_;
};

}  // namespace mrd::fabric

#endif  // MRD_TESTS_FABRIC_PEERS_H_
