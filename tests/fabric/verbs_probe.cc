// The verbs fabric on real devices, by hand or from verbs_probe.sh in the virtual machine. Plays
// what the daemon and its client do: a buffer that "the client" has mapped at one address is
// registered by "the daemon" with that address.
//
//   verbs_probe devices           lists what the fabric sees
//   verbs_probe check DEVICE      registers in every way and says what was wrong; exit code 1 when
//   anything was verbs_probe storm DEVICE IP   connects to itself and leaves, again and again;
//   nothing may be left verbs_probe serve DEVICE IP   registers 1 MiB (peer's pattern, seed 7),
//   prints "port=N", accepts whoever connects and
//                                 sends the region as private data (u64 addr, u32 rkey, u32 length,
//                                 big-endian). Reads commands: "connect IP PORT", "deregister",
//                                 "show OFFSET LENGTH", "end". Prints "accepted QP", "connected
//                                 QP", "left error=N", and the answers.
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <list>
#include <memory>
#include <sstream>
#include <string>

#include "daemon/fabric/checks.h"
#include "daemon/fabric/verbs/api_real.h"
#include "daemon/fabric/verbs/verbs_fabric.h"
#include "mrd/v1/status.h"
#include "tests/fabric/peers.h"

namespace mrd::fabric {
namespace {

constexpr AccessMask kReadWrite =
    Bit(v1::LOCAL_WRITE) | Bit(v1::REMOTE_READ) | Bit(v1::REMOTE_WRITE);
constexpr uint64_t kClientAddress = 0x650000000000;
constexpr size_t kSize = 1 << 20;

// A memfd, mapped by "the client" at its address and by "the daemon" anywhere; or, for devices that
// ignore iova, by the daemon at the client's address while it registers.
class Buffer {
 public:
  explicit Buffer(size_t size, unsigned flags = 0)
      : size_(size), fd_(memfd_create("probe", MFD_CLOEXEC | flags)) {
    if (ftruncate(fd_, size) != 0) perror("ftruncate");
    client_ =
        static_cast<char*>(mmap(reinterpret_cast<void*>(kClientAddress), size,
                                PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd_, 0));
    daemon_ = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    if (client_ == MAP_FAILED || daemon_ == MAP_FAILED) perror("mmap");
  }
  ~Buffer() {
    munmap(client_, size_);
    munmap(daemon_, size_);
    close(fd_);
  }

  char* client() const { return client_; }

  RegionSpec Spec(const DeviceInfo& device) const {
    RegionSpec spec;
    spec.iova = reinterpret_cast<uint64_t>(client_);
    spec.length = size_;
    spec.access = kReadWrite;
    // One process plays both, so that the client's own mapping is the daemon's at that address.
    spec.va = device.any_address ? daemon_ : client_;
    return spec;
  }

 private:
  const size_t size_;
  const int fd_;
  char* client_;
  char* daemon_;
};

int wrong = 0;

void Expect(const std::string& what, bool good, const std::string& detail = "") {
  printf("%s %s%s%s\n", good ? "good " : "WRONG", what.c_str(), detail.empty() ? "" : ": ",
         detail.c_str());
  if (!good) ++wrong;
}

void ExpectReason(const std::string& what, const absl::Status& status, v1::Reason reason) {
  Expect(what, ReasonOf(status) == reason,
         status.ToString(absl::StatusToStringMode::kWithNoExtraData));
}

const DeviceInfo* Find(const std::vector<DeviceInfo>& devices, const std::string& name) {
  for (const DeviceInfo& device : devices) {
    if (device.name == name) return &device;
  }
  return nullptr;
}

int ListDevices(Fabric& fabric) {
  for (const DeviceInfo& device : fabric.Devices()) {
    std::string addresses;
    for (const std::string& address : device.addresses) addresses += " " + address;
    printf(
        "device=%s transport=%s active=%d endpoints=%d any_address=%d dma_buf=%d "
        "max_region_bytes=%lu "
        "max_regions=%lu access=%s addresses=%s\n",
        device.name.c_str(), v1::Device::Transport_Name(device.transport).c_str(), device.active,
        device.endpoints, device.any_address, device.dma_buf, device.max_region_bytes,
        device.max_regions, AccessNames(device.access).c_str(), addresses.c_str());
  }
  return 0;
}

int Check(Fabric& fabric, const DeviceInfo& device) {
  const auto domain = *fabric.CreateDomain(device.name);
  Buffer buffer(kSize);
  const RegionSpec whole = buffer.Spec(device);
  const auto refused = [&](const std::string& what, RegionSpec spec, v1::Reason reason) {
    ExpectReason(what, domain->Register(spec).status(), reason);
  };
  const auto works = [&](const std::string& what, const RegionSpec& spec) {
    auto region = domain->Register(spec);
    Expect(what, region.ok(), region.status().ToString());
    if (!region.ok()) return;
    // rxe gives no rkey where no peer may have access.
    const bool remote = (spec.access & kRemoteAccess) != 0;
    Expect(what + ", keys", (*region)->lkey() != 0 && (!remote || (*region)->rkey() != 0));
    Expect(what + ", its end", (*region)->Deregister().ok());
  };
  works("the whole buffer at the client's address", whole);
  RegionSpec spec = whole;
  spec.iova += 5;
  spec.va = static_cast<char*>(whole.va) + 5;
  spec.length = 100;
  works("100 bytes within a page", spec);
  for (const v1::AccessFlag flag :
       {v1::REMOTE_ATOMIC, v1::RELAXED_ORDERING, v1::ON_DEMAND, v1::HUGETLB}) {
    spec = whole;
    spec.access |= Bit(flag);
    const bool has = (device.access & Bit(flag)) != 0;
    if (has && flag != v1::HUGETLB) {
      works(v1::AccessFlag_Name(flag), spec);
    } else if (!has) {
      refused(v1::AccessFlag_Name(flag), spec, v1::ACCESS_UNSUPPORTED);
    }
  }
  spec = whole;
  spec.access = 0;
  works("read by the device only", spec);
  spec.length = 0;
  refused("no length", spec, v1::INVALID_LENGTH);
  spec = whole;
  spec.length = UINT64_MAX;
  refused("length SIZE_MAX", spec,
          device.max_region_bytes == UINT64_MAX ? v1::ADDRESS_UNUSABLE : v1::DEVICE_LIMIT);
  spec = whole;
  spec.access = Bit(v1::REMOTE_WRITE);
  refused("REMOTE_WRITE alone", spec, v1::ACCESS_INVALID);
  spec = whole;
  spec.iova += 8;
  refused("another page offset", spec, v1::ADDRESS_UNUSABLE);
  spec = whole;
  spec.va = static_cast<char*>(spec.va) + kSize;  // Nothing is mapped there.
  spec.iova += kSize;
  munmap(spec.va, 4096);
  refused("nothing there", spec, v1::ADDRESS_UNUSABLE);
  if (!device.any_address) {
    spec = whole;
    spec.iova += 4096;
    spec.length -= 4096;
    refused("not at the client's address", spec, v1::ADDRESS_UNUSABLE);
  }
  if (!device.dma_buf) {
    spec = whole;
    spec.dma_buf_fd = 0;
    refused("dma-buf", spec, v1::UNSUPPORTED);
  }
  std::list<std::unique_ptr<Region>> many;
  for (int i = 0; i < 1000; ++i) many.push_back(*domain->Register(whole));
  int ended = 0;
  for (auto& region : many) ended += region->Deregister().ok();
  Expect("1000 regions over the same pages", ended == 1000);
  ExpectReason("no such device", fabric.CreateDomain("nodev0").status(), v1::DEVICE_UNKNOWN);
  ExpectReason("an address of nobody", fabric.Listen("192.0.2.1", 0, 4).status(),
               v1::ADDRESS_INVALID);
  ExpectReason("loopback is no device's", fabric.Listen("999.0.0.1", 0, 4).status(),
               v1::ADDRESS_INVALID);
  return wrong != 0;
}

int Storm(Fabric& fabric, const DeviceInfo& device, const std::string& ip) {
  const auto domain = *fabric.CreateDomain(device.name);
  auto listener = *fabric.Listen(ip, 0, 16);
  const uint32_t port = listener->info().local_port;
  ExpectReason("the port is in use", fabric.Listen(ip, port, 4).status(), v1::CONNECTION_FAILED);
  for (int i = 0; i < 20; ++i) {
    Side a(domain), c(domain);
    listener->Accept(a.Spec("from a"), a.Done());
    fabric.Connect(ip, port, "", c.Spec("from c"), c.Done());
    const absl::Status accepted = a.Wait(), connected = c.Wait();
    if (!accepted.ok() || !connected.ok()) {
      Expect("a connection", false, accepted.ToString() + " / " + connected.ToString());
      continue;
    }
    if (a.established().private_data.compare(0, 6, "from c") != 0 ||
        c.established().private_data.compare(0, 6, "from a") != 0) {
      Expect("private data", false);
    }
    Side& first = i % 2 == 0 ? a : c;
    Side& second = i % 2 == 0 ? c : a;
    first.Disconnect();
    Expect("connection " + std::to_string(i) + ": the other side learns that it ended",
           second.WaitLeft() && !second.left_error());
    second.Disconnect();
  }
  {
    Side a(domain);
    listener->Accept(a.Spec("", std::chrono::milliseconds(50)), a.Done());
    ExpectReason("nobody comes", a.Wait(), v1::WAIT_ENDED);
  }
  {
    Side c(domain);  // Nobody accepts.
    fabric.Connect(ip, port, "", c.Spec("", std::chrono::milliseconds(300)), c.Done());
    ExpectReason("nobody accepts", c.Wait(), v1::WAIT_ENDED);
  }
  listener.reset();
  {
    Side c(domain);
    fabric.Connect(ip, port, "", c.Spec(), c.Done());
    const absl::Status status = c.Wait();
    const auto detail = DetailOf(status);
    Expect("nobody listens",
           detail && detail->reason() == v1::CONNECTION_FAILED &&
               detail->errno_value() == ECONNREFUSED,
           status.ToString(absl::StatusToStringMode::kWithNoExtraData));
  }
  return wrong != 0;
}

// What one side of "serve" keeps of each connection.
class Server {
 public:
  Server(Fabric& fabric, const DeviceInfo& device, const std::string& ip)
      : fabric_(fabric),
        domain_(*fabric.CreateDomain(device.name)),
        buffer_(kSize),
        region_(*domain_->Register(buffer_.Spec(device))),
        listener_(*fabric.Listen(ip, 0, 16)) {
    // The stock peer's pattern (its "seed:LENGTH:7").
    for (size_t i = 0; i < kSize; ++i) buffer_.client()[i] = 7 + 131 * i + (i >> 8);
  }

  int Run() {
    printf("port=%u addr=%#lx rkey=%#x\n", listener_->info().local_port, kClientAddress,
           region_->rkey());
    for (int i = 0; i < 4; ++i) Accept();
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string command;
      words >> command;
      if (command == "end") break;
      if (command == "deregister") {
        printf("deregister %s\n", region_->Deregister().ToString().c_str());
      } else if (command == "show") {
        size_t offset = 0, length = 0;
        words >> offset >> length;
        for (size_t i = 0; i < length; ++i) {
          printf("%02x", static_cast<unsigned char>(buffer_.client()[offset + i]));
        }
        printf("\n");
      } else if (command == "connect") {
        std::string ip;
        uint32_t port = 0;
        words >> ip >> port;
        fabric_.Connect(ip, port, "", Spec(), Done("connected", false));
      }
    }
    listener_.reset();
    std::list<std::unique_ptr<Connection>> ended;
    {
      MutexLock lock(mutex_);
      ended.swap(connections_);
    }
    return 0;
  }

 private:
  std::string Wire() const {
    struct {
      uint64_t addr;
      uint32_t rkey;
      uint32_t length;
    } wire = {htobe64(kClientAddress), htobe32(region_->rkey()), htobe32(kSize)};
    return std::string(reinterpret_cast<const char*>(&wire), sizeof wire);
  }

  ConnectionSpec Spec() {
    ConnectionSpec spec;
    spec.private_data = Wire();
    spec.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    spec.domain = [this](const std::string&) { return domain_; };
    spec.left = [](bool error) { printf("left error=%d\n", error); };
    return spec;
  }

  EstablishedCallback Done(const char* what, bool again) {
    return [this, what, again](absl::StatusOr<Established> result) {
      if (result.ok()) {
        printf("%s qp=%u peer=%s\n", what, result->connection->info().qp_num,
               result->connection->info().peer_address.c_str());
        MutexLock lock(mutex_);
        connections_.push_back(std::move(result->connection));
      } else {
        printf("%s failed: %s\n", what,
               result.status().ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
        if (ReasonOf(result.status()) == v1::ENDPOINT_UNKNOWN) return;
      }
      if (again) Accept();
    };
  }

  void Accept() { listener_->Accept(Spec(), Done("accepted", true)); }

  Fabric& fabric_;
  const std::shared_ptr<Domain> domain_;
  Buffer buffer_;
  const std::unique_ptr<Region> region_;
  std::unique_ptr<Listener> listener_;
  Mutex mutex_;
  std::list<std::unique_ptr<Connection>> connections_ MRD_GUARDED_BY(mutex_);
};

int Main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::unique_ptr<verbs::Api> api = verbs::MakeRealApi();
  auto fabric = MakeVerbsFabric(*api);
  if (!fabric.ok()) {
    fprintf(stderr, "%s\n", fabric.status().ToString().c_str());
    return 1;
  }
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "devices") return ListDevices(**fabric);
  const auto devices = (*fabric)->Devices();
  const DeviceInfo* device = argc > 2 ? Find(devices, argv[2]) : nullptr;
  if (device != nullptr && command == "check") return Check(**fabric, *device);
  if (device != nullptr && command == "storm" && argc > 3) return Storm(**fabric, *device, argv[3]);
  if (device != nullptr && command == "serve" && argc > 3) {
    return Server(**fabric, *device, argv[3]).Run();
  }
  fprintf(stderr, "verbs_probe devices | check DEVICE | storm DEVICE IP | serve DEVICE IP\n");
  return 2;
}

}  // namespace
}  // namespace mrd::fabric

int main(int argc, char** argv) { return mrd::fabric::Main(argc, argv); }
