// Broker::AddBuffer and ReleaseBuffers: the descriptors that sessions pass.
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/broker.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

// Refused descriptors beyond the limit are remembered with their reason up to this many; then the
// session ends.
constexpr size_t kRefusalsRemembered = 256;

// What they held goes here: it may take long.
absl::Status Release(Session& session, const std::vector<uint64_t>& ids) {
  session.link->Drain();
  std::vector<BufferSlot> gone;  // Declared before the lock: ends after it.
  MutexLock lock(session.mutex);
  for (const uint64_t id : ids) {
    if (session.buffers.contains(id)) continue;
    return MakeError(v1::BUFFER_UNKNOWN, absl::StrCat("no buffer ", id, " in this session"),
                     {.advice = "Name buffers that were passed and not released"});
  }
  for (const uint64_t id : ids) {
    const auto found = session.buffers.find(id);
    if (found == session.buffers.end()) continue;  // Named twice.
    gone.push_back(std::move(found->second));
    session.buffers.erase(found);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BookedBuffer> BookedBuffer::Make(Books& books, HolderRef holder) {
  if (auto booked = books.Book(*holder, {.buffers = 1}); !booked.ok()) return booked;
  BookedBuffer made;
  made.books_ = &books;
  made.holder_ = std::move(holder);
  return made;
}

BookedBuffer::~BookedBuffer() {
  if (books_) books_->Release(*holder_, {.buffers = 1});
}

bool Broker::AddBuffer(Session& session, uint64_t id, UniqueFd fd) {
  const uint32_t user = session.user;
  BufferSlot slot;
  const size_t most = session.terms()->limits.buffers;
  auto booked = BookedBuffer::Make(books_, session.holder);
  auto facts = memory::Inspect(fd.get());
  if (!facts.ok()) slot.refusal = facts.status();
  if (!booked.ok()) {
    slot.refusal = booked.status();
  } else {
    slot.booked = *std::move(booked);
  }
  bool orderly = true;
  {
    MutexLock lock(session.mutex);
    const size_t held = session.buffers.size();
    if (!session.ending) {
      orderly = id != 0 && !session.buffers.contains(id) &&
                (held < most || held - most < kRefusalsRemembered);
      if (orderly && held >= most) {
        // The same text each time: the session keeps one for all of them.
        slot.refusal = MakeError(
            v1::QUOTA_BUFFERS,
            absl::StrCat("the session has reached its limit of ", most,
                         " buffers; this one was not taken"),
            {.limit_name = "buffers of the session",
             .limit = most,
             .used = most,
             .advice = "Release buffers (release_after does it at once), then pass it again"});
      }
      if (orderly) {
        if (!slot.refusal.ok()) {
          if (slot.refusal != session.last_refusal) session.last_refusal = slot.refusal;
          slot.refusal = session.last_refusal;
        } else {
          slot.buffer = std::make_shared<memory::Buffer>(std::move(fd), *facts, mappings_);
        }
        session.buffers.emplace(id, std::move(slot));
      }
    }
  }
  // Closing may take long, or for ever.
  if (fd && !disposer_.Close(user, std::move(fd))) return false;
  return orderly;
}

void Broker::ReleaseBuffers(const SessionRef& session, const std::vector<uint64_t>& ids,
                            Done done) {
  if (ids.size() > limits_.ranges_per_call) {
    return done(MakeError(
        v1::INVALID_LENGTH, absl::StrCat(ids.size(), " buffers in one call"),
        {.limit_name = "buffers in one call",
         .limit = limits_.ranges_per_call,
         .advice = absl::StrCat("Release at most ", limits_.ranges_per_call, " buffers a call")}));
  }
  if (ids.empty()) return done(absl::OkStatus());
  auto work = Work::Begin(*this, session);
  if (!work.ok()) return done(work.status());
  registrar_.SubmitCleanup(session->owner(),
                           [work = *std::move(work), ids, done = std::move(done)]() mutable {
                             done(Release(*work.session(), ids));
                           });
}

}  // namespace mrd::broker
