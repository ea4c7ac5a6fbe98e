#include "daemon/fabric/soft/loopback_link.h"

#include <utility>

namespace mrd::fabric {
namespace {

// Shared by the two ends; touched in the loop's thread only.
struct Link {
  struct End {
    bool announced = false;  // `done` was given the connection.
    bool ended = false;
    std::function<void(bool error)> left;
  };
  End ends[2];

  // Tells an end that the other has ended: once, and not before it knows that it was connected.
  void TellIfLeft(int end) {
    End& told = ends[end];
    if (!told.announced || told.ended || !ends[1 - end].ended) return;
    if (const auto left = std::exchange(told.left, nullptr)) left(false);
  }
};

class LoopbackConnection final : public Connection {
 public:
  LoopbackConnection(EventLoop& loop, std::shared_ptr<Link> link, int end, ConnectionInfo info,
                     std::shared_ptr<Domain> domain)
      : loop_(loop),
        link_(std::move(link)),
        end_(end),
        info_(std::move(info)),
        domain_(std::move(domain)) {}

  ~LoopbackConnection() override {
    loop_.RunSync([this] {
      link_->ends[end_].ended = true;
      link_->ends[end_].left = nullptr;
      link_->TellIfLeft(1 - end_);
    });
  }

  const ConnectionInfo& info() const override { return info_; }

 private:
  EventLoop& loop_;
  const std::shared_ptr<Link> link_;
  const int end_;
  const ConnectionInfo info_;
  const std::shared_ptr<Domain> domain_;
};

}  // namespace

void EstablishLoopback(EventLoop& loop, LoopbackEnd a, LoopbackEnd b) {
  auto link = std::make_shared<Link>();
  LoopbackEnd* ends[] = {&a, &b};
  // Both connections exist before either is announced: a `done` may destroy its own at once.
  std::unique_ptr<Connection> connections[2];
  for (int i = 0; i < 2; ++i) {
    link->ends[i].left = std::move(ends[i]->left);
    connections[i] = std::make_unique<LoopbackConnection>(loop, link, i, std::move(ends[i]->info),
                                                          std::move(ends[i]->domain));
  }
  for (int i = 0; i < 2; ++i) {
    link->ends[i].announced = true;
    ends[i]->done(Established{std::move(connections[i]), std::move(ends[i]->peer_data)});
    link->TellIfLeft(i);
  }
}

}  // namespace mrd::fabric
