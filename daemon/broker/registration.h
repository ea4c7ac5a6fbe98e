// One Register call, from its checks to its commit or roll-back.
#ifndef MRD_DAEMON_BROKER_REGISTRATION_H_
#define MRD_DAEMON_BROKER_REGISTRATION_H_

#include <memory>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/broker/pinning.h"

namespace mrd::broker {

// Runs on one thread at a time: the caller's and then, for work that may take long, one of the
// registrar's. Whoever answers holds it, and with it the session's Work: see Done.
class Registration : public std::enable_shared_from_this<Registration> {
 public:
  static void Start(Broker& broker, const SessionRef& session, RegisterSpec spec,
                    RegisterDone done);

 private:
  Registration(Broker& broker, Work work, RegisterSpec spec, RegisterDone done)
      : broker_(broker),
        session_(*work.session()),
        work_(std::move(work)),
        spec_(std::move(spec)),
        terms_(session_.terms()),
        ttl_(terms_->ClampTtl(spec_.ttl)),
        done_(std::move(done)) {}

  // What can be said of the call by itself.
  absl::Status CheckShape() const;
  // Joins a call with the same request_id. True: this one is answered, or will be with that one.
  bool Repeats();
  // An id not seen yet waits in the attach socket: its packet was sent before the call. Without
  // `may_block` that is left for later: buffers_ is empty then.
  absl::Status FindBuffers(bool may_block);
  // `may_block`: devices are looked at afresh. Else it finds none, and is to be called again by a
  // thread that may block, where none of those known is active.
  absl::Status FindDevices(bool may_block);
  DomainSet& domain_set() { return named_ ? named_->domains : session_.domains; }
  // Domains of before a restart in which a connection of the session lies.
  void FindOldDomains();
  size_t domain_count() const { return devices_.size() + old_domains_.size(); }
  void AddOldDomains(const std::string& device);
  // The domains on these devices. False: one of them is still to be made.
  bool FindDomains();
  absl::Status MakeDomains();
  // Whether all of it takes a fraction of a millisecond: mapped, few, in domains that are there.
  bool Small() const;

  // An error where nobody waits for the answer any more.
  absl::Status GoOn();
  absl::Status GoOnLocked() MRD_REQUIRES(session_.mutex);
  void Report(Progress progress);
  void Run();
  absl::Status Make();
  // All that can be checked at once; then all of it is booked.
  absl::Status CheckAndBook();
  // Looks for the pages. After the booking: what a call makes its thread look at is bounded by what
  // its user may pin.
  absl::Status CheckPresent();
  absl::Status CheckHugetlb(const RangeSpec& range, const memory::Buffer& buffer) const;
  absl::Status PinAll();
  absl::Status Commit(std::shared_ptr<const LeaseViews> answer);
  // In the ledger, where there is one: from then on a restart of the daemon finds the leases.
  absl::Status WriteDown() MRD_REQUIRES(session_.mutex);
  void RollBack();
  // Before the call is answered: whoever has the answer finds nothing of it under way.
  void LetGo();
  void Finish(RegisterResult result);

  Broker& broker_;
  Session& session_;
  const Work work_;
  const RegisterSpec spec_;
  const policy::TermsRef terms_;        // In force when it came.
  const std::chrono::nanoseconds ttl_;  // Of its leases.
  RegisterDone done_;
  // For its addresses. A thread that takes calls does not: where another buffer has taken the place
  // since Small() looked, the answer is BUSY.
  bool may_wait_ = true;
  NamedDomainRef named_;  // Null: the session's private domains.
  // Null: no request_id, or the call is over. Others have a look at it: by the session's lock.
  RequestRecord* record_ = nullptr;
  Waiters given_up_;  // Of the record, when nobody waited any more. By the same lock.
  std::vector<std::shared_ptr<memory::Buffer>> buffers_;  // One a range.
  std::vector<std::string> devices_;
  std::vector<SessionDomain> old_domains_;
  // One a device, and behind each the old ones there.
  absl::InlinedVector<SessionDomain, 1> domains_;
  std::vector<std::unique_ptr<Lease>> leases_;  // One a range, as far as they are pinned.
  Pinning pinning_;
  Amounts booked_;
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_REGISTRATION_H_
