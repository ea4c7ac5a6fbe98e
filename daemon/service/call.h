// One gRPC call of the completion-queue API: one template for every unary method.
#ifndef MRD_DAEMON_SERVICE_CALL_H_
#define MRD_DAEMON_SERVICE_CALL_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "daemon/broker/session.h"
#include "daemon/service/answers.h"
#include "daemon/service/call_log.h"
#include "daemon/service/call_stats.h"
#include "daemon/service/error.h"
#include "daemon/service/guarded_connection.h"
#include "daemon/service/handoff.h"
#include "daemon/service/queue_gate.h"

namespace mrd::service {

// What comes out of the completion queue.
class Tag {
 public:
  virtual ~Tag() = default;
  virtual void Proceed(bool ok) = 0;
};

// What all calls need of the server.
struct CallEnvironment {
  broker::Broker& broker;
  Answers& answers;
  QueueGate& gate;
  int takers;  // Calls of a method that wait to be taken: one for each thread that polls.
  // See ServerOptions::observe.
  std::function<void(const std::string& request, std::chrono::nanoseconds took)> observe;
  std::string admin_socket;
  CallTable* calls;    // May be null.
  TextSource metrics;  // May be empty, as the next one. See ServerOptions.
  std::function<absl::Status()> reload_policy;
};

// How a call is let in.
enum class Admission {
  kSession,  // Needs a session.
  kAdmin,    // Needs an admin session.
  // Needs a session, however many calls it has in flight: a renewal is answered at once, and leases
  // must not lapse by calls that wait.
  kAlways,
};

// Owns itself: it ends when its answer has gone out or its connection has gone.
template <typename Request, typename Response>
class Call : public Answer {
 public:
  using Handler = std::function<void(Call*)>;

  // One method of a service, for as long as its completion queue runs.
  struct Method {
    CallEnvironment* environment;
    std::string request;  // The name of its request message.
    CallStats* stats;     // May be null: nobody counts.
    Admission admission;
    bool watch_cancel;  // cancelled() tells; costs an event more a call.
    // The member of a generated AsyncService that asks for a call of this method (RequestRegister).
    std::function<void(grpc::ServerContext*, Request*, grpc::ServerAsyncResponseWriter<Response>*,
                       void* tag)>
        accept;
    // Answers the call, now or later and from any thread, with Finish, exactly once.
    Handler handle;
  };

  // Waits for a call of this method, and after it for the next one.
  static void Wait(const Method* method) {
    method->environment->gate.Pass([method] { Put(method); });
  }

  const Request& request() const { return request_; }
  Response& response() { return response_; }
  const broker::SessionRef& session() const { return session_; }
  std::chrono::system_clock::time_point deadline() const { return context_.deadline(); }
  // REQUIRES: the method watches for it.
  bool cancelled() const { return cancelled_.load(); }

  void Finish(const absl::Status& status) {
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - started_;
    const auto& observe = method_->environment->observe;
    if (method_->stats) method_->stats->Finished(static_cast<int>(status.code()), took);
    if (!status.ok() || CallsAreLogged()) {
      TellFinished(method_->environment->broker, session_.get(), method_->request, status, took);
    }
    if (observe) observe(method_->request, took);
    state_ = kAnswered;
    // Freed when this returns, not when the answer has gone out: gRPC has a copy of its own.
    const Request request = std::move(request_);
    const Response response = std::move(response_);
    const size_t bytes = status.ok() ? response.ByteSizeLong() : status.message().size();
    answer_ = method_->environment->answers.Started(this, uid(), kCallBytes + bytes);
    HandOver(static_cast<Tag*>(&main_tag_));
    const bool passed = method_->environment->gate.Pass([&] {
      if (status.ok()) {
        writer_.Finish(response, grpc::Status::OK, static_cast<Tag*>(&main_tag_));
      } else {
        writer_.FinishWithError(ToGrpc(status), static_cast<Tag*>(&main_tag_));
      }
    });
    if (!passed) OnEvent(false);  // The server is shut down, and with it the connection.
  }

  void Hold() override { refs_.fetch_add(1); }
  void Cancel() override {
    // The connection as a whole: what gRPC has begun to send it keeps for as long as that stands.
    EndPeer(context_.peer(), started_, "answers that it does not read");
    context_.TryCancel();
    Unref();
  }

 private:
  // What a call takes until it ends, gRPC's part included, as measured.
  static constexpr size_t kCallBytes = 12 << 10;

  enum State { kWaiting, kRunning, kAnswered };

  static void Put(const Method* method) {
    auto* call = new Call(method);
    HandOver(static_cast<Tag*>(&call->main_tag_));
    HandOver(static_cast<Tag*>(&call->done_tag_));
    if (method->watch_cancel) {
      call->context_.AsyncNotifyWhenDone(static_cast<Tag*>(&call->done_tag_));
    }
    method->accept(&call->context_, &call->request_, &call->writer_,
                   static_cast<Tag*>(&call->main_tag_));
  }

  // The call's own events: it was taken, its answer went out.
  struct MainTag : Tag {
    explicit MainTag(Call* call) : call(call) {}
    void Proceed(bool ok) override { call->OnEvent(ok); }
    Call* call;
  };
  // The call is over for its client: answered or cancelled.
  struct DoneTag : Tag {
    explicit DoneTag(Call* call) : call(call) {}
    void Proceed(bool) override {
      call->cancelled_ = call->context_.IsCancelled();
      call->Unref();
    }
    Call* call;
  };

  explicit Call(const Method* method)
      : method_(method),
        main_tag_(this),
        done_tag_(this),
        // From the start: another thread may get the event that the call is over before this one
        // has begun with the event that it was taken.
        refs_(method->watch_cancel ? 2 : 1),
        writer_(&context_) {}

  ~Call() override {
    if (!counted_) return;
    session_->calls.fetch_sub(1);
    session_->calls_of_user->fetch_sub(1);
  }

  void Unref() {
    if (refs_.fetch_sub(1) == 1) delete this;
  }

  void OnEvent(bool ok) {
    if (state_ == kAnswered) {
      method_->environment->answers.Ended(answer_);
      return Unref();
    }
    if (!ok) {
      // The queue is shutting down: a call that was never taken has no other event.
      if (method_->watch_cancel) Unref();
      return Unref();
    }
    started_ = std::chrono::steady_clock::now();
    state_ = kRunning;
    const Method* const method = method_;
    if (auto admitted = Admit(); admitted.ok()) {
      method->handle(this);
    } else {
      Finish(admitted);
    }
    // The call may be gone. Others of its method are waited for all the while: see takers.
    Wait(method);
  }

  std::optional<uint32_t> uid() const {
    if (session_ == nullptr) return std::nullopt;
    return session_->user;
  }

  absl::Status Admit() {
    broker::Broker& broker = method_->environment->broker;
    auto session = SessionOf(context_, broker);
    if (!session.ok()) return session.status();
    session_ = *std::move(session);
    session_->calls_made.fetch_add(1, std::memory_order_relaxed);
    const size_t most = session_->terms()->limits.calls;
    const size_t most_of_user = broker.limits().calls_of_uid;
    counted_ = true;
    const size_t before = session_->calls.fetch_add(1);
    // A call that its client has cancelled is no stream of the connection's any more; what the
    // daemon keeps of it stays until it has been answered.
    const size_t before_of_user = session_->calls_of_user->fetch_add(1);
    if (method_->admission == Admission::kAlways) return absl::OkStatus();
    // Others that are refused now count in these.
    if (before >= most) return TooManyCalls("session", most);
    if (before_of_user >= most_of_user) return TooManyCalls("user", most_of_user);
    if (method_->admission == Admission::kAdmin && !session_->identity.admin) {
      return NotAdmin(method_->environment->admin_socket);
    }
    return absl::OkStatus();
  }

  const Method* const method_;
  MainTag main_tag_;
  DoneTag done_tag_;
  std::atomic<int> refs_;  // Events that are still to come.
  std::atomic<bool> cancelled_{false};
  State state_ = kWaiting;
  bool counted_ = false;
  grpc::ServerContext context_;
  Request request_;
  Response response_;
  grpc::ServerAsyncResponseWriter<Response> writer_;
  broker::SessionRef session_;
  std::chrono::steady_clock::time_point started_;
  Answers::Ticket answer_;
};

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_CALL_H_
