// How much each uid and each session may have where no policy says otherwise: the built-in
// defaults. README tables them.
#ifndef MRD_DAEMON_BROKER_LIMITS_H_
#define MRD_DAEMON_BROKER_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace mrd::broker {

struct Limits {
  // Over all sessions of a uid.
  uint64_t sessions = 4096;
  uint64_t unattached = 256;    // Connections to an attach socket, beyond `sessions`.
  uint64_t connections = 8192;  // To the gRPC socket.
  uint64_t regions = 262144;
  uint64_t pinned_bytes =
      0;  // Of whole pages, each registration counted; 0: half of the machine's memory.
  uint64_t endpoints = 1024;
  uint64_t buffers_of_uid = 16384;  // Held at once, refused ones included: each is a descriptor.
  size_t calls_of_uid = 4096;       // Worked on, those whose client has cancelled them included.
  size_t queued_of_uid = 2048;      // Registrations that wait for a thread.

  // Of one session.
  size_t buffers = 4096;  // Held at once, refused ones included.
  size_t devices_per_call = 64;
  size_t calls = 256;  // In flight.
  size_t ranges_per_call = 10000;
  size_t queued = 128;  // Registrations that wait for a thread.

  // Of the daemon.
  size_t queued_in_all = 4096;
  // That all of them hold together, admins excepted: what is left is for the daemon's own, and for
  // the operator, however many users there are.
  uint64_t descriptors = UINT64_MAX;

  // Buffers that can shrink under the device are taken.
  bool unsealed = false;

  bool operator==(const Limits&) const = default;
};

// The same with pinned_bytes filled in.
Limits WithDefaults(Limits limits);

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_LIMITS_H_
