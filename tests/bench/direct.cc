#include "tests/bench/direct.h"

#include <string.h>
#include <sys/mman.h>

#include <utility>

#include "tests/bench/die.h"

namespace mrd::bench {
namespace {

template <typename T>
T Must(const fabric::verbs::Result<T>& result, const std::string& what) {
  if (!result.ok()) Die("direct: " + what + ": " + strerror(result.error));
  return result.value;
}

}  // namespace

Direct::Direct(std::unique_ptr<fabric::verbs::Api> api, const std::string& device)
    : api_(std::move(api)) {
  devices_ = Must(api_->GetDeviceList(), "list of devices");
  for (ibv_device** each = devices_; *each != nullptr; ++each) {
    if (device == (*each)->name) context_ = Must(api_->OpenDevice(*each), "opening " + device);
  }
  if (context_ == nullptr) Die("direct: no device " + device + " here");
  pd_ = Must(api_->AllocPd(context_), "protection domain");
}

Direct::~Direct() {
  api_->DeallocPd(pd_);
  api_->CloseDevice(context_);
  api_->FreeDeviceList(devices_);
}

ibv_mr* Direct::Register(void* data, uint64_t length) {
  return Must(api_->RegMr(pd_, data, length, reinterpret_cast<uint64_t>(data),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
              "registration");
}

void Direct::Deregister(ibv_mr* mr) {
  if (const int error = api_->DeregMr(mr); error != 0) {
    Die(std::string("direct: deregistration: ") + strerror(error));
  }
}

const char* NameOf(Populate populate) {
  switch (populate) {
    case Populate::kNot:
      return "not populated";
    case Populate::kMapPopulate:
      return "MAP_POPULATE";
    case Populate::kMadvise:
      return "MADV_POPULATE_READ";
  }
  return "";
}

FreshMapping::FreshMapping(int fd, uint64_t length, Populate populate) : length_(length) {
  const int flags = MAP_SHARED | (populate == Populate::kMapPopulate ? MAP_POPULATE : 0);
  data_ = mmap(nullptr, length, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (data_ == MAP_FAILED) Die(std::string("mmap: ") + strerror(errno));
  if (populate == Populate::kMadvise && madvise(data_, length, MADV_POPULATE_READ) != 0) {
    Die(std::string("MADV_POPULATE_READ: ") + strerror(errno));
  }
}

FreshMapping::~FreshMapping() { munmap(data_, length_); }

}  // namespace mrd::bench
