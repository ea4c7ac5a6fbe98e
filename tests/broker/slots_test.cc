#include "daemon/broker/ledger/slots.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/ledger/ledger.h"
#include "daemon/broker/ledger/version.h"

namespace mrd::broker::ledger {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

UniqueFd Dup(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

std::vector<std::string> All(const Slots& slots, Kind kind) {
  std::vector<std::string> all;
  slots.ForEach(kind, [&all](Slots::Id, std::string_view bytes) { all.emplace_back(bytes); });
  return all;
}

std::unique_ptr<Slots> Reopen(const Slots& slots) {
  auto opened = Slots::Open(Dup(slots.fd()));
  EXPECT_TRUE(opened.ok()) << opened.status();
  return opened.ok() ? *std::move(opened) : nullptr;
}

TEST(SlotsTest, RecordsOfAnySizeAreThereForTheNextProcess) {
  const auto slots = *Slots::Create();
  const std::string large(100'000, 'x');
  ASSERT_TRUE(slots->Put(Kind::kLease, "a lease").ok());
  ASSERT_TRUE(slots->Put(Kind::kLease, large).ok());
  ASSERT_TRUE(slots->Put(Kind::kSession, "").ok());
  const auto next = Reopen(*slots);
  EXPECT_THAT(All(*next, Kind::kLease), UnorderedElementsAre("a lease", large));
  EXPECT_THAT(All(*next, Kind::kSession), ElementsAre(""));
  EXPECT_THAT(All(*next, Kind::kCall), ElementsAre());
}

TEST(SlotsTest, WhatIsErasedIsGoneAndItsRoomIsUsedAgain) {
  const auto slots = *Slots::Create();
  const uint64_t before = slots->bytes();
  for (int i = 0; i < 100'000; ++i) {
    const auto id = slots->Put(Kind::kLease, std::string(i % 400, 'y'));
    ASSERT_TRUE(id.ok());
    slots->Erase(*id);
  }
  EXPECT_EQ(slots->bytes(), before);
  EXPECT_THAT(All(*slots, Kind::kLease), ElementsAre());
  const auto next = Reopen(*slots);
  EXPECT_THAT(All(*next, Kind::kLease), ElementsAre());
}

TEST(SlotsTest, ItGrowsAndIsReadWhole) {
  const auto slots = *Slots::Create();
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_TRUE(slots->Put(Kind::kLease, std::to_string(i)).ok());
  }
  EXPECT_EQ(All(*Reopen(*slots), Kind::kLease).size(), 20'000u);
}

TEST(SlotsTest, StampsAndCountersStay) {
  const auto slots = *Slots::Create();
  const Slots::Id id = *slots->Put(Kind::kSession, "s");
  EXPECT_EQ(slots->stamp(id), 0u);
  slots->SetStamp(id, 77);
  slots->RaiseCounter(Slots::kNextId, 5);
  slots->RaiseCounter(Slots::kNextId, 4);
  const auto next = Reopen(*slots);
  EXPECT_EQ(next->stamp(id), 77u);
  EXPECT_EQ(next->counter(Slots::kNextId), 5u);
}

TEST(SlotsTest, WhatIsNoLedgerIsRefused) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[1]);
  EXPECT_TRUE(absl::IsDataLoss(Slots::Open(UniqueFd(ends[0])).status()));
  UniqueFd empty(memfd_create("empty", MFD_ALLOW_SEALING));
  EXPECT_TRUE(absl::IsDataLoss(Slots::Open(Dup(empty.get())).status()));
  ASSERT_EQ(ftruncate(empty.get(), 256 << 10), 0);
  EXPECT_TRUE(absl::IsDataLoss(Slots::Open(Dup(empty.get())).status())) << "it could shrink";
  ASSERT_EQ(fcntl(empty.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(absl::IsDataLoss(Slots::Open(Dup(empty.get())).status())) << "all zeros";
  EXPECT_TRUE(absl::IsDataLoss(Slots::Open(UniqueFd(open("/dev/null", O_RDWR))).status()));
}

// Where its head has them.
constexpr off_t kVersionAt = 8, kCountersAt = 16, kOldestReaderAt = 80;

void SetHead(const Slots& slots, off_t at, uint32_t value) {
  ASSERT_EQ(pwrite(slots.fd(), &value, sizeof value, at), 4);
}
uint32_t Head(const Slots& slots, off_t at) {
  uint32_t value = 0;
  EXPECT_EQ(pread(slots.fd(), &value, sizeof value, at), 4);
  return value;
}

TEST(SlotsTest, ItSaysWhichVersionWritesItAndWhichMayReadIt) {
  const auto slots = *Slots::Create();
  EXPECT_EQ(slots->version(), kThisVersion.number);
  EXPECT_EQ(Head(*slots, kVersionAt), kThisVersion.number);
  EXPECT_EQ(Head(*slots, kOldestReaderAt), kThisVersion.oldest_reader);
}

TEST(SlotsTest, ALaterVersionsIsReadWhereThatSaysSoAndIsThisOnesThen) {
  const auto slots = *Slots::Create();
  ASSERT_TRUE(slots->Put(Kind::kLease, "a lease").ok());
  SetHead(*slots, kVersionAt, kThisVersion.number + 1);
  SetHead(*slots, kOldestReaderAt, kThisVersion.number);
  const auto next = Reopen(*slots);
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->version(), kThisVersion.number + 1);
  EXPECT_THAT(All(*next, Kind::kLease), ElementsAre("a lease"));
  next->TakeOver();
  EXPECT_EQ(next->version(), kThisVersion.number);
  EXPECT_EQ(Head(*slots, kOldestReaderAt), kThisVersion.number) << "its records are there still";
}

TEST(SlotsTest, WhatIsForOtherVersionsIsNotRead) {
  const auto slots = *Slots::Create();
  const auto refused = [&](uint32_t version, uint32_t oldest_reader) {
    SetHead(*slots, kVersionAt, version);
    SetHead(*slots, kOldestReaderAt, oldest_reader);
    const auto opened = Slots::Open(Dup(slots->fd()));
    EXPECT_TRUE(absl::IsDataLoss(opened.status())) << version << " " << oldest_reader;
    return std::string(opened.status().message());
  };
  EXPECT_THAT(refused(kThisVersion.number + 2, kThisVersion.number + 1),
              testing::HasSubstr("version " + std::to_string(kThisVersion.number + 2) +
                                 ", for daemons from version " +
                                 std::to_string(kThisVersion.number + 1) + " on"));
  refused(kThisVersion.number + 1, 0);  // Which says nothing.
  refused(kThisVersion.number, kThisVersion.number + 1);
  refused(kThisVersion.oldest_written - 1, 0);
}

TEST(SlotsTest, KindsAndCountersOfOtherVersionsStay) {
  const auto slots = *Slots::Create();
  constexpr auto kUnknown = static_cast<Kind>(200);
  const std::string large(1000, 'u');
  ASSERT_TRUE(slots->Put(kUnknown, large).ok());
  SetHead(*slots, kCountersAt + 7 * 8, 77);  // Of no Counter.
  const auto next = Reopen(*slots);
  ASSERT_NE(next, nullptr);
  next->TakeOver();
  for (int i = 0; i < 1000; ++i) {
    const auto id = next->Put(Kind::kLease, std::string(i, 'y'));
    ASSERT_TRUE(id.ok());
    next->Erase(*id);
    next->RaiseCounter(Slots::kNextId, i);
  }
  const auto again = Reopen(*next);
  ASSERT_NE(again, nullptr);
  EXPECT_THAT(All(*again, kUnknown), ElementsAre(large));
  EXPECT_EQ(Head(*again, kCountersAt + 7 * 8), 77u);
}

// What is damaged is refused whole, or every record that is left is one that was written.
TEST(SlotsTest, TenThousandDamagesNeverGiveARecordThatNobodyWrote) {
  const auto slots = *Slots::Create();
  std::map<std::string, int> written;
  for (int i = 0; i < 300; ++i) {
    const std::string bytes = std::to_string(i) + std::string(i % 350, 'z');
    ASSERT_TRUE(slots->Put(Kind::kLease, bytes).ok());
    ++written[bytes];
  }
  struct stat file;
  ASSERT_EQ(fstat(slots->fd(), &file), 0);
  std::string sound(file.st_size, '\0');
  ASSERT_EQ(pread(slots->fd(), sound.data(), sound.size(), 0), file.st_size);
  std::mt19937_64 random(4);
  int refused = 0;
  for (int round = 0; round < 10'000; ++round) {
    // Most of it is free: the damage goes where the records are.
    const size_t used = 128 * 800;
    std::string damaged = sound.substr(0, used);
    const int bytes = 1 + static_cast<int>(random() % 8);
    for (int i = 0; i < bytes; ++i) damaged[random() % used] = static_cast<char>(random());
    if (round % 7 == 0) {
      const size_t from = random() % used;
      std::fill(damaged.begin() + from, damaged.begin() + from + random() % (used - from),
                static_cast<char>(random()));
    }
    ASSERT_EQ(pwrite(slots->fd(), damaged.data(), used, 0), static_cast<ssize_t>(used));
    const auto opened = Slots::Open(Dup(slots->fd()));
    if (!opened.ok()) {
      ++refused;
      continue;
    }
    for (const std::string& bytes_left : All(**opened, Kind::kLease)) {
      ASSERT_EQ(written.count(bytes_left), 1u) << "round " << round;
    }
  }
  EXPECT_GT(refused, 5'000) << "or the damage missed the records";
  ASSERT_EQ(pwrite(slots->fd(), sound.data(), sound.size(), 0), file.st_size);
  EXPECT_EQ(All(*Reopen(*slots), Kind::kLease).size(), 300u);
}

TEST(SlotsTest, ARecordThatLeadsOnToAnotherIsDamaged) {
  const auto slots = *Slots::Create();
  const Slots::Id id = *slots->Put(Kind::kLease, "a lease");
  const Slots::Id other = *slots->Put(Kind::kLease, "another lease");
  const off_t next = off_t{id} * 128 + 16;  // Of the one slot that it has.
  ASSERT_EQ(pwrite(slots->fd(), &other, sizeof other, next), 4);
  EXPECT_TRUE(absl::IsDataLoss(Slots::Open(Dup(slots->fd())).status()));
  const Slots::Id none = 0;
  ASSERT_EQ(pwrite(slots->fd(), &none, sizeof none, next), 4);
  EXPECT_EQ(All(*Reopen(*slots), Kind::kLease).size(), 2u);
}

int die_at = 0;
void Die() {
  if (--die_at == 0) _exit(9);
}

// Killed between any two of its steps: each record is there whole, or is not.
TEST(SlotsTest, KilledAtAnyStepItIsSound) {
  for (int step = 1;; ++step) {
    const auto slots = *Slots::Create();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      die_at = step;
      Slots::SetHook(Die);
      const auto first = slots->Put(Kind::kLease, std::string(300, '1'));
      const auto second = slots->Put(Kind::kLease, std::string(10, '2'));
      slots->Erase(*first);
      if (!slots->Put(Kind::kLease, std::string(500, '3')).ok()) _exit(1);
      slots->Erase(*second);
      _exit(0);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const auto next = Slots::Open(Dup(slots->fd()));
    ASSERT_TRUE(next.ok()) << "step " << step << ": " << next.status();
    const auto left = All(**next, Kind::kLease);
    const std::vector<std::vector<std::string>> states = {
        {},
        {std::string(300, '1')},
        {std::string(300, '1'), std::string(10, '2')},
        {std::string(10, '2')},
        {std::string(10, '2'), std::string(500, '3')},
        {std::string(500, '3')}};
    // Before and after each.
    ASSERT_LT(static_cast<size_t>(step / 2), states.size());
    EXPECT_THAT(left, testing::UnorderedElementsAreArray(states[step / 2])) << "step " << step;
    if (WEXITSTATUS(status) == 0) break;
    ASSERT_EQ(WEXITSTATUS(status), 9);
  }
}

class NoStore final : public Store {
 public:
  absl::Status Add(const std::string&, int) override { return absl::OkStatus(); }
  void Remove(const std::string&) override {}
  size_t limit() const override { return 0; }
  size_t used() const override { return 0; }
};

std::function<void()> meanwhile;
void Interrupt() {
  if (auto once = std::exchange(meanwhile, nullptr)) once();
}

// Else a daemon that is killed there has the next one give the same ids again.
TEST(LedgerTest, NobodyFindsAnIdReservedThatTheFileHasNot) {
  NoStore store;
  Ledger ledger(*Slots::Create(), store);
  Slots::SetHook(Interrupt);
  bool looked = false;
  meanwhile = [&] {  // Another thread, while the first is about to write.
    ledger.UsesId(9);
    EXPECT_GT(ledger.slots().counter(Slots::kNextId), 9u);
    looked = true;
  };
  ledger.UsesId(10);
  EXPECT_TRUE(looked);
  meanwhile = [&] {
    ledger.UsesHandle(9);
    EXPECT_GE(ledger.slots().counter(Slots::kMostHandle), 9u);
    looked = false;
  };
  ledger.UsesHandle(10);
  EXPECT_FALSE(looked);
  Slots::SetHook(nullptr);
  EXPECT_EQ(ledger.slots().counter(Slots::kMostHandle), 10u);
}

// A record whose stamp came after it would be of the boot's time for whoever finds it between.
TEST(SlotsTest, KilledAtAnyStepARecordHasItsStamp) {
  int found = 0;
  for (int step = 1;; ++step) {
    const auto slots = *Slots::Create();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      die_at = step;
      Slots::SetHook(Die);
      _exit(slots->Put(Kind::kLease, "a lease", 7).ok() ? 0 : 1);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const auto next = Reopen(*slots);
    ASSERT_TRUE(next);
    next->ForEach(Kind::kLease, [&](Slots::Id id, std::string_view) {
      ++found;
      EXPECT_EQ(next->stamp(id), 7u) << "step " << step;
    });
    if (WEXITSTATUS(status) == 0) break;
    ASSERT_EQ(WEXITSTATUS(status), 9);
  }
  EXPECT_EQ(found, 2) << "after the store, and with all done";
}

}  // namespace
}  // namespace mrd::broker::ledger
