// The peers of `mrctl register --listen`: accepted in a loop, told of the regions, dropped when
// they leave.
#ifndef MRD_CLIENT_MRCTL_PEERS_H_
#define MRD_CLIENT_MRCTL_PEERS_H_

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "client/client.h"
#include "client/mrctl/command.h"

namespace mrctl {

class Peers final {
 public:
  // `options` must outlive this.
  explicit Peers(const GlobalOptions& options) : options_(options) {}
  ~Peers() { Stop(); }
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // Accepts on `listener`, which must outlive Stop(), giving each peer `private_data`.
  void Start(const mrd::Listener* listener, std::string private_data);

  // Ids of those that are there.
  std::set<uint64_t> Connected() const;
  // The daemon was restarted: these have left unheard, and peers are given that from now on.
  void Restarted(const std::set<uint64_t>& left, std::string private_data);

  // Stops listening and disconnects all peers. Again: nothing happens.
  void Stop();

  // AttachOptions::on_event.
  void OnEvent(const mrd::v1::AttachEvent& event);

 private:
  void AcceptLoop(const mrd::Listener* listener);
  void Drop(uint64_t id);
  void Say(const mrd::v1::Endpoint& endpoint, const std::string& what) const;

  const GlobalOptions& options_;
  const mrd::Listener* listener_ = nullptr;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::map<uint64_t, mrd::Endpoint> connected_;  // Guarded by mutex_, as all below.
  // Peers that left before Accept had returned their endpoint.
  std::set<uint64_t> ended_early_;
  std::string private_data_;
  int restarts_ = 0;  // That private_data_ knows of.
  bool stopping_ = false;
  std::condition_variable changed_;
};

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_PEERS_H_
