// Which versions of the daemon take over a ledger from which.
//
// Packages are upgraded, and rolled back, under live sessions: each version takes over from the one
// before it and from the one after it. So one that writes something new keeps to this:
// - A record gets further fields; none gets another meaning, and absent means what it meant before.
//   An older version keeps fields that it does not know, in what it writes anew too.
// - A new kind of record, or a new counter, is one that an older version may leave as it stands,
//   while what it is about ends: ids and names of stored descriptors are not used again, so the
//   next one that knows it finds that it is about nothing, and erases it.
// - All else raises oldest_reader: another layout; and what an older version would end, since it
//   knows no record that claims it - descriptors in the store, objects in the kernel, whose handles
//   are then other objects'.
#ifndef MRD_DAEMON_BROKER_LEDGER_VERSION_H_
#define MRD_DAEMON_BROKER_LEDGER_VERSION_H_

#include <google/protobuf/message_lite.h>

#include <cstdint>
#include <string>

namespace mrd::broker::ledger {

struct Version {
  uint32_t number;          // Of what is written. One more with each release that writes otherwise.
  uint32_t oldest_written;  // It takes over from versions since this one.
  uint32_t oldest_reader;   // Versions before this one are to close its ledger whole.
};

// This build's. It and BytesOf are all that builds of two versions differ in when tests have them
// take over from each other.
extern const Version kThisVersion;

// A record as this version writes it.
std::string BytesOf(const google::protobuf::MessageLite& record);

}  // namespace mrd::broker::ledger

#endif  // MRD_DAEMON_BROKER_LEDGER_VERSION_H_
