#include "daemon/broker/ledger/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/broker/ledger/version.h"

namespace mrd::broker::ledger {
namespace {

constexpr char kMagic[8] = {'m', 'r', 'd', 'l', 'e', 'd', 'g', 'r'};
constexpr uint64_t kSlotBytes = 128;
constexpr uint64_t kChunkBytes = 256 << 10;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // Mapped at once; memory comes in chunks.
constexpr size_t kMostRecordBytes = 1 << 20;

void (*hook)() = nullptr;

// Around one store that changes what counts.
class Hooked {
 public:
  Hooked() { Call(); }
  ~Hooked() { Call(); }
  Hooked(const Hooked&) = delete;
  Hooked& operator=(const Hooked&) = delete;

 private:
  static void Call() {
    if (hook) hook();
  }
};

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the ledger is damaged: ", what));
}

}  // namespace

// In the file: other processes read it.
struct Slots::Slot {
  static constexpr size_t kPayload = 96;

  // Of a record's first slot: 0, or CRC32 << 32 | length << 8 | kind. Of others: 0.
  std::atomic<uint64_t> commit;
  std::atomic<uint64_t> stamp;
  uint32_t next;  // 0: the last one.
  uint32_t unused[3];
  char payload[kPayload];
};

struct Slots::Header {
  char magic[8];
  std::atomic<uint32_t> version;  // Of whoever writes it now.
  uint32_t slot_bytes;
  std::atomic<uint64_t> counters[8];
  std::atomic<uint32_t> oldest_reader;  // Of all who have written it; 0: `version`.
};

namespace {

// The checksum covers where the parts lie, too: a chain that leads elsewhere is not taken for it.
uint32_t Checksum(Kind kind, std::string_view bytes, const std::vector<Slots::Id>& chain) {
  uLong sum = crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  const auto k = static_cast<Bytef>(kind);
  sum = crc32(sum, &k, 1);
  return crc32(sum, reinterpret_cast<const Bytef*>(chain.data()), chain.size() * sizeof chain[0]);
}

constexpr uint64_t CommitWord(Kind kind, size_t length, uint32_t sum) {
  return uint64_t{sum} << 32 | uint64_t{length} << 8 | static_cast<uint64_t>(kind);
}

constexpr size_t LengthOf(uint64_t commit) { return commit >> 8 & 0xffffff; }
constexpr Kind KindOf(uint64_t commit) { return static_cast<Kind>(commit & 0xff); }

}  // namespace

uint32_t Slots::version() const { return header().version; }

void Slots::TakeOver() {
  Header& head = header();
  // First: records of whoever wrote it before may stay for good.
  head.oldest_reader = std::max(head.oldest_reader.load(), kThisVersion.oldest_reader);
  head.version = kThisVersion.number;
}

void Slots::SetHook(void (*function)()) { hook = function; }

Slots::Slot& Slots::at(Id id) const {
  return *reinterpret_cast<Slot*>(base_ + uint64_t{id} * kSlotBytes);
}

Slots::Header& Slots::header() const { return *reinterpret_cast<Header*>(base_); }

Slots::~Slots() {
  if (base_) munmap(base_, kMostBytes);
}

absl::Status Slots::Map() {
  static_assert(sizeof(Slot) == kSlotBytes && sizeof(Header) <= kSlotBytes);
  void* const base =
      mmap(nullptr, kMostBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_.get(), 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the ledger cannot be mapped: ", strerror(errno)));
  }
  base_ = static_cast<char*>(base);
  madvise(base_, kMostBytes, MADV_DONTDUMP);  // It has the sessions' tokens.
  return absl::OkStatus();
}

absl::Status Slots::GrowLocked() {
  const uint64_t before = uint64_t{slots_} * kSlotBytes;
  if (before + kChunkBytes > kMostBytes) {
    return absl::ResourceExhaustedError("the ledger is full");
  }
  // Now, for a page that is missing when it is written to ends the process.
  if (fallocate(fd_.get(), 0, before, kChunkBytes) < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("the ledger cannot grow: ", strerror(errno)));
  }
  const Id first = std::max<Id>(slots_, 1);
  slots_ += kChunkBytes / kSlotBytes;
  for (Id id = slots_; id-- > first;) free_.push_back(id);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Slots>> Slots::Create() {
  UniqueFd fd(memfd_create("mrd-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the ledger: ", strerror(errno)));
  }
  std::unique_ptr<Slots> slots(new Slots(std::move(fd)));
  if (auto mapped = slots->Map(); !mapped.ok()) return mapped;
  MutexLock lock(slots->mutex_);
  if (auto grown = slots->GrowLocked(); !grown.ok()) return grown;
  Header& header = slots->header();
  header.version = kThisVersion.number;
  header.oldest_reader = kThisVersion.oldest_reader;
  header.slot_bytes = kSlotBytes;
  memcpy(header.magic, kMagic, sizeof kMagic);
  return slots;
}

absl::StatusOr<std::unique_ptr<Slots>> Slots::Open(UniqueFd fd) {
  std::unique_ptr<Slots> slots(new Slots(std::move(fd)));
  // Only a memfd knows seals: what else is put in its place could block, or shrink.
  const int seals = fcntl(slots->fd_.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return Damaged("it is no memfd, or is not sealed");
  struct stat file;
  if (fstat(slots->fd_.get(), &file) < 0 || file.st_size <= 0 || file.st_size % kChunkBytes != 0 ||
      static_cast<uint64_t>(file.st_size) > kMostBytes) {
    return Damaged("its size is none of a ledger");
  }
  if (auto mapped = slots->Map(); !mapped.ok()) return mapped;
  if (auto sound = slots->Check(); !sound.ok()) return sound;
  return slots;
}

absl::Status Slots::Check() {
  MutexLock lock(mutex_);
  struct stat file;
  fstat(fd_.get(), &file);
  slots_ = file.st_size / kSlotBytes;
  const Header& head = header();
  if (memcmp(head.magic, kMagic, sizeof kMagic) != 0) return Damaged("it does not begin as one");
  const uint32_t version = head.version;
  const uint32_t reader = head.oldest_reader != 0 ? head.oldest_reader.load() : version;
  if (version < kThisVersion.oldest_written || reader > kThisVersion.number) {
    return absl::DataLossError(
        absl::StrCat("the ledger is of version ", version, ", for daemons from version ", reader,
                     " on; this daemon is of version ", kThisVersion.number,
                     ", and reads those from version ", kThisVersion.oldest_written, " on"));
  }
  if (head.slot_bytes != kSlotBytes) return Damaged("its slots have another size");
  std::vector<bool> used(slots_);
  used[0] = true;
  std::string bytes;
  std::vector<Id> chain;
  for (Id id = 1; id < slots_; ++id) {
    if (at(id).commit.load(std::memory_order_acquire) == 0) continue;
    if (!Read(id, &bytes, &chain)) return Damaged(absl::StrCat("record ", id));
    for (const Id part : chain) {
      if (used[part]) return Damaged(absl::StrCat("slot ", part, " is of two records"));
      used[part] = true;
    }
  }
  for (Id id = slots_; id-- > 1;) {
    if (!used[id]) free_.push_back(id);
  }
  return absl::OkStatus();
}

bool Slots::Read(Id first, std::string* bytes, std::vector<Id>* chain) const {
  const uint64_t commit = at(first).commit.load(std::memory_order_acquire);
  const size_t length = LengthOf(commit);
  if (length > kMostRecordBytes) return false;
  bytes->clear();
  chain->clear();
  for (Id id = first;; id = at(id).next) {
    if (id == 0 || id >= slots_.load(std::memory_order_relaxed)) return false;
    chain->push_back(id);
    const size_t part = std::min(length - bytes->size(), Slot::kPayload);
    bytes->append(at(id).payload, part);
    if (bytes->size() < length) continue;
    if (at(id).next != 0) return false;  // Erase would go on there.
    break;
  }
  return commit == CommitWord(KindOf(commit), length, Checksum(KindOf(commit), *bytes, *chain));
}

absl::StatusOr<Slots::Id> Slots::Put(Kind kind, std::string_view bytes, uint64_t stamp) {
  if (bytes.size() > kMostRecordBytes) {
    return absl::ResourceExhaustedError("a record that is too long for the ledger");
  }
  const size_t count = std::max<size_t>(1, (bytes.size() + Slot::kPayload - 1) / Slot::kPayload);
  std::vector<Id> chain(count);
  {
    MutexLock lock(mutex_);
    while (free_.size() < count) {
      if (auto grown = GrowLocked(); !grown.ok()) return grown;
    }
    for (Id& id : chain) {
      id = free_.back();
      free_.pop_back();
    }
  }
  for (size_t i = 0; i < count; ++i) {
    Slot& slot = at(chain[i]);
    slot.next = i + 1 < count ? chain[i + 1] : 0;
    slot.stamp.store(i == 0 ? stamp : 0, std::memory_order_relaxed);
    const std::string_view part = bytes.substr(i * Slot::kPayload, Slot::kPayload);
    memcpy(slot.payload, part.data(), part.size());
  }
  const Hooked hooked;
  at(chain[0]).commit.store(CommitWord(kind, bytes.size(), Checksum(kind, bytes, chain)),
                            std::memory_order_release);
  return chain[0];
}

void Slots::Erase(Id id) {
  if (id == 0) return;
  {
    const Hooked hooked;
    at(id).commit.store(0, std::memory_order_release);
  }
  MutexLock lock(mutex_);
  for (Id part = id; part != 0; part = at(part).next) free_.push_back(part);
}

void Slots::SetStamp(Id id, uint64_t stamp) {
  if (id == 0) return;
  const Hooked hooked;
  at(id).stamp.store(stamp, std::memory_order_release);
}

uint64_t Slots::stamp(Id id) const { return at(id).stamp.load(std::memory_order_acquire); }

void Slots::ForEach(Kind kind, const std::function<void(Id, std::string_view)>& visit) const {
  const uint32_t slots = slots_.load(std::memory_order_acquire);
  std::string bytes;
  std::vector<Id> chain;
  for (Id id = 1; id < slots; ++id) {
    const uint64_t commit = at(id).commit.load(std::memory_order_acquire);
    if (commit == 0 || KindOf(commit) != kind) continue;
    if (Read(id, &bytes, &chain)) visit(id, bytes);
  }
}

uint64_t Slots::counter(Counter which) const {
  return header().counters[which].load(std::memory_order_acquire);
}

void Slots::SetCounter(Counter which, uint64_t value) {
  const Hooked hooked;
  header().counters[which].store(value, std::memory_order_release);
}

std::atomic<uint64_t>& Slots::raw(Counter which) const { return header().counters[which]; }

void Slots::RaiseCounter(Counter which, uint64_t value) {
  const Hooked hooked;
  std::atomic<uint64_t>& counter = header().counters[which];
  uint64_t seen = counter.load(std::memory_order_acquire);
  while (seen < value && !counter.compare_exchange_weak(seen, value)) {
  }
}

bool Slots::Get(Id id, std::string* bytes) const {
  std::vector<Id> chain;
  return id != 0 && at(id).commit.load(std::memory_order_acquire) != 0 && Read(id, bytes, &chain);
}

uint64_t Slots::bytes() const { return uint64_t{slots_} * kSlotBytes; }

}  // namespace mrd::broker::ledger
