// What the service manager is told of the daemon, and how often it wants to hear from it.
#ifndef MRD_DAEMON_HOST_SERVICE_MANAGER_H_
#define MRD_DAEMON_HOST_SERVICE_MANAGER_H_

#include <chrono>
#include <string>

#include "daemon/host/notify_socket.h"
#include "daemon/mutex.h"

namespace mrd::host {

// Main thread, but for Reload. Where no service manager has started this process ($NOTIFY_SOCKET),
// it does nothing. One that does not answer is logged once, and never waited for by the main loop.
class ServiceManager {
 public:
  ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  // The daemon serves. `status` is one line for people (`systemctl status`).
  void Ready(const std::string& status);
  // Tells it where it is another than before. To be called at most once a second.
  void SetStatus(const std::string& status);
  // It ends, and takes no longer than this for it.
  void Stopping(std::chrono::milliseconds most);
  // A start has failed. Returns after a moment: units that are started again at once, which
  // a killed daemon needs, would else do so ten times a second until somebody mends the policy.
  void StartFailed();

  // Within each of these times it wants a FeedWatchdog (sd_watchdog_enabled(3)); zero: it does not.
  std::chrono::microseconds watchdog_timeout() const { return watchdog_timeout_; }
  void FeedWatchdog();

  // The configuration is read anew while it lives. Any thread; several at once are one.
  class Reload {
   public:
    explicit Reload(ServiceManager& manager);
    ~Reload();
    Reload(const Reload&) = delete;
    Reload& operator=(const Reload&) = delete;

   private:
    ServiceManager& manager_;
  };

 private:
  NotifySocket socket_;
  std::chrono::microseconds watchdog_timeout_{0};
  std::string status_;  // As it was told.
  // Held while it is told, so that the order is right: a leaf, for which only reloads wait.
  Mutex reloading_;
  int reloads_ MRD_GUARDED_BY(reloading_) = 0;
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_SERVICE_MANAGER_H_
