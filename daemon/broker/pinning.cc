#include "daemon/broker/pinning.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

constexpr size_t kAskEvery = 64;                       // Ranges.
constexpr uint64_t kPiece = uint64_t{256} << 20;       // Mapped before anybody is asked or told.
constexpr uint64_t kWorthAThread = uint64_t{1} << 20;  // Bytes on one device.
constexpr std::chrono::seconds kWaitForAddress{30};

uint64_t SumOfLengths(const std::vector<RangeSpec>& ranges) {
  uint64_t sum = 0;
  for (const RangeSpec& range : ranges) sum += range.length;  // They lie within their buffers.
  return sum;
}

}  // namespace

absl::Status Pinning::Run(Job job, const std::function<void()>& ask_for_help) {
  const uint64_t bytes = SumOfLengths(job.ranges);
  const size_t devices = job.domains.size();
  total_ = {.bytes_total = bytes * devices, .ranges_total = job.ranges.size() * devices};
  for (auto& lease : job.leases) {
    lease->regions.resize(devices);
    lease->view.keys.resize(devices);
  }
  {
    MutexLock lock(mutex_);
    job_ = std::make_unique<const Job>(std::move(job));
    running_ = 1;
  }
  if (bytes >= kWorthAThread) {
    for (size_t i = 1; i < devices; ++i) ask_for_help();
  }
  PinOnDevices();
  MutexLock lock(mutex_);
  over_ = true;  // Who comes now does not begin.
  --running_;
  while (running_ > 0) changed_.Wait(mutex_);
  job_ = nullptr;
  return first_error_;
}

void Pinning::Help() {
  {
    MutexLock lock(mutex_);
    if (over_) return;
    ++running_;
  }
  PinOnDevices();
  MutexLock lock(mutex_);
  --running_;
  changed_.NotifyAll();
}

void Pinning::PinOnDevices() {
  for (;;) {
    const size_t device = next_device_.fetch_add(1);
    if (device >= job_->domains.size() || failed_) return;
    const absl::Status pinned = PinOn(device);
    if (pinned.ok()) continue;
    MutexLock lock(mutex_);
    if (first_error_.ok()) first_error_ = pinned;
    failed_ = true;  // Last: another device's thread that stops by it has an error that says less.
  }
}

absl::Status Pinning::PinOn(size_t device) {
  Last last;
  for (size_t i = 0; i < job_->ranges.size(); ++i) {
    if (i % kAskEvery == 0) {
      if (failed_) return absl::OkStatus();
      if (auto go_on = job_->go_on(); !go_on.ok()) return go_on;
    }
    if (auto pinned = Pin(i, device, last); !pinned.ok()) {
      if (pinned.code() == absl::StatusCode::kCancelled) return pinned;
      return OfRange(job_->ranges, i, pinned);
    }
    Count(bytes_pinned_, job_->ranges[i].length);
    ranges_pinned_.fetch_add(1, std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

absl::Status Pinning::Pin(size_t i, size_t device, Last& last) {
  const RangeSpec& range = job_->ranges[i];
  memory::Buffer& buffer = *job_->buffers[i];
  const SessionDomain& domain = job_->domains[device];
  Lease& lease = *job_->leases[i];
  HeldRegion& held = lease.regions[device];
  absl::StatusOr<std::unique_ptr<fabric::Region>> region;
  if (buffer.dma_buf()) {
    fabric::RegionSpec spec = SpecOf(range);
    spec.dma_buf_fd = buffer.fd();
    spec.dma_buf_offset = range.offset;
    region = domain.domain->Register(spec);
  } else if (domain.device->any_address) {
    region = PinAnywhere(range, buffer, *domain.domain, last, held);
  } else {
    region = PinInPlace(range, buffer, *domain.domain);
  }
  if (!region.ok()) return region.status();
  held.domain = domain.domain;
  held.region = *std::move(region);
  lease.view.keys[device] = {domain.device, held.region->lkey(), held.region->rkey()};
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<fabric::Region>> Pinning::PinAnywhere(const RangeSpec& range,
                                                                     memory::Buffer& buffer,
                                                                     fabric::Domain& domain,
                                                                     Last& last, HeldRegion& held) {
  const bool same =
      last.mapping && &buffer == last.buffer && last.mapping->Covers(range.offset, range.length);
  if (!same) {
    if (!buffer.IsMapped(range.offset, range.length)) Mapped(buffer);
    auto mapping = buffer.Map(range.offset, range.length);
    if (!mapping.ok()) return mapping.status();
    last = {&buffer, *std::move(mapping)};
  }
  if (auto populated = Populate(*last.mapping, range); !populated.ok()) return populated;
  if ((job_->access & fabric::Bit(v1::ON_DEMAND)) != 0) held.mapping = last.mapping;
  fabric::RegionSpec spec = SpecOf(range);
  spec.va = last.mapping->At(range.offset);
  return domain.Register(spec);
}

absl::StatusOr<std::unique_ptr<fabric::Region>> Pinning::PinInPlace(const RangeSpec& range,
                                                                    memory::Buffer& buffer,
                                                                    fabric::Domain& domain) {
  const auto now = std::chrono::steady_clock::now();
  const bool was_mapped = buffer.IsMappedAt(range.addr, range.offset, range.length);
  auto mapping = buffer.MapAt(range.addr, range.offset, range.length,
                              job_->may_wait ? now + kWaitForAddress : now);
  if (!mapping.ok()) return mapping.status();
  if (!was_mapped) Mapped(buffer);
  if (auto populated = Populate(**mapping, range); !populated.ok()) return populated;
  fabric::RegionSpec spec = SpecOf(range);
  spec.va = (*mapping)->At(range.offset);
  return domain.Register(spec);
}

absl::Status Pinning::Populate(memory::Mapping& mapping, const RangeSpec& range) {
  const uint64_t end = range.offset + range.length;
  for (uint64_t at = range.offset; at < end;) {
    const uint64_t next = std::min(end, (at / kPiece + 1) * kPiece);
    mapping.Populate(at, next - at);
    if (range.length > kPiece) {
      if (failed_) return absl::CancelledError("another device has refused");
      if (auto go_on = job_->go_on(); !go_on.ok()) return go_on;
      Count(bytes_mapped_, next - at);
    }
    at = next;
  }
  if (range.length <= kPiece) bytes_mapped_.fetch_add(range.length, std::memory_order_relaxed);
  return absl::OkStatus();
}

fabric::RegionSpec Pinning::SpecOf(const RangeSpec& range) const {
  return {.iova = range.addr,
          .length = range.length,
          .access = job_->access,
          .va = nullptr,
          .dma_buf_fd = -1,
          .dma_buf_offset = 0};
}

void Pinning::Mapped(memory::Buffer& buffer) {
  MutexLock lock(mutex_);
  mapped_.push_back(&buffer);
}

void Pinning::Unmap() {
  MutexLock lock(mutex_);
  for (memory::Buffer* const buffer : mapped_) buffer->Unmap();
  mapped_.clear();
}

void Pinning::Count(std::atomic<uint64_t>& counter, uint64_t more) {
  counter.fetch_add(more, std::memory_order_relaxed);
  if (total_.bytes_total < kReportedFrom) return;
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  int64_t due = next_report_.load();
  const int64_t next = now + std::chrono::nanoseconds(kReportEvery).count();
  if (now < due || !next_report_.compare_exchange_strong(due, next)) return;
  Progress progress = total_;
  progress.bytes_mapped = bytes_mapped_.load();
  progress.bytes_pinned = bytes_pinned_.load();
  progress.ranges_pinned = ranges_pinned_.load();
  job_->report(progress);
}

}  // namespace mrd::broker
