// What gRPC and protobuf have to say goes to the daemon's log, and little of it: a client can make
// them say something with every packet, and put what it likes into it.
#ifndef MRD_DAEMON_LIBRARY_LOGS_H_
#define MRD_DAEMON_LIBRARY_LOGS_H_

namespace mrd {

// To be called once logging is set up, before other threads are started.
void TakeLibraryLogs();

// Drops what they say from now on: gRPC's threads may outlive main(), and the log does not.
void DropLibraryLogs();

}  // namespace mrd

#endif  // MRD_DAEMON_LIBRARY_LOGS_H_
