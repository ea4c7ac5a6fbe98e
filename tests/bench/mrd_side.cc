#include "tests/bench/mrd_side.h"

#include <unistd.h>

#include <utility>

#include "tests/bench/die.h"

namespace mrd::bench {
namespace {

constexpr std::chrono::seconds kTimeout{30};

std::shared_ptr<internal::Session> AttachForEmptyCalls(const std::string& socket_dir) {
  internal::SessionOptions options;
  options.attach.name = "bench empty";
  options.attach.timeout = kTimeout;
  options.call_timeout = kTimeout;
  options.renew = false;
  return Must(internal::Session::Attach(socket_dir, std::move(options)), "attach");
}

}  // namespace

Client AttachWhenUp(const AttachOptions& options) {
  const auto until = std::chrono::steady_clock::now() + kTimeout;
  for (;;) {
    auto client = Client::Attach(options);
    if (client.ok() || std::chrono::steady_clock::now() > until) {
      return Must(std::move(client), "attach");
    }
    usleep(20000);
  }
}

MrdSide::MrdSide(const std::string& socket_dir, const std::string& device)
    : client_(AttachWhenUp({.socket_dir = socket_dir, .name = "bench"})),
      empty_(AttachForEmptyCalls(socket_dir)) {
  options_.devices = {device};
  options_.preset = v1::Access::REG_WRITE;
}

Buffer MrdSide::MakeBuffer(uint64_t size) const {
  return Must(client_.CreateBuffer(size, {.name = "bench"}), "buffer");
}

std::vector<Region> MrdSide::Register(std::span<const Range> ranges) const {
  return Must(client_.Register(options_, ranges), "register");
}

Region MrdSide::Register(const Range& range) const {
  return std::move(Register(std::span(&range, 1)).front());
}

void MrdSide::Deregister(std::span<Region> regions) const {
  MustBe(client_.Deregister(regions), "deregister");
}

void MrdSide::EmptyCall() const {
  MustBe(empty_->rpc().ReleaseBuffers(v1::ReleaseBuffersRequest(), kTimeout), "empty call");
}

}  // namespace mrd::bench
