#include "daemon/host/service_manager.h"

#include <systemd/sd-daemon.h>
#include <time.h>

#include <cstdint>
#include <thread>

#include "absl/strings/str_cat.h"

namespace mrd::host {
namespace {

constexpr std::chrono::seconds kAfterAFailedStart{1};
// For what comes after the sessions have ended.
constexpr std::chrono::seconds kLastSteps{5};

uint64_t MonotonicUsec() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * uint64_t{1'000'000} + now.tv_nsec / 1000;
}

}  // namespace

ServiceManager::ServiceManager() {
  uint64_t usec = 0;
  if (socket_ && sd_watchdog_enabled(/*unset_environment=*/0, &usec) > 0) {
    watchdog_timeout_ = std::chrono::microseconds(usec);
  }
}

void ServiceManager::Ready(const std::string& status) {
  status_ = status;
  socket_.Send(absl::StrCat("READY=1\nSTATUS=", status), NotifySocket::kSome);
}

void ServiceManager::SetStatus(const std::string& status) {
  if (status == status_) return;
  if (socket_.Send(absl::StrCat("STATUS=", status), NotifySocket::kNone)) status_ = status;
}

void ServiceManager::Stopping(std::chrono::milliseconds most) {
  const std::chrono::microseconds usec = most + kLastSteps;
  socket_.Send(absl::StrCat("STOPPING=1\nEXTEND_TIMEOUT_USEC=", usec.count()), NotifySocket::kNone);
}

void ServiceManager::StartFailed() {
  if (socket_) std::this_thread::sleep_for(kAfterAFailedStart);
}

void ServiceManager::FeedWatchdog() { socket_.Send("WATCHDOG=1", NotifySocket::kNone); }

ServiceManager::Reload::Reload(ServiceManager& manager) : manager_(manager) {
  MutexLock lock(manager_.reloading_);
  if (manager_.reloads_++ > 0) return;
  // The time is for systemd 253 and later, where a unit may be Type=notify-reload.
  manager_.socket_.Send(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", MonotonicUsec()),
                        NotifySocket::kSome);
}

ServiceManager::Reload::~Reload() {
  MutexLock lock(manager_.reloading_);
  if (--manager_.reloads_ == 0) manager_.socket_.Send("READY=1", NotifySocket::kSome);
}

}  // namespace mrd::host
