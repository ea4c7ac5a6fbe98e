// RDMA READ and WRITE.

#ifndef TESTS_VM_PEER_TRANSFER_H_
#define TESTS_VM_PEER_TRANSFER_H_

#include <stddef.h>
#include <stdint.h>

#include "connection.h"

// Moves `length` bytes between peer->scratch at `local` and the other side's region at `offset`, in
// several requests if it is long. "ok", or what went wrong: a verbs status, "disconnected",
// "timeout".
const char* transfer(struct peer* peer, enum ibv_wr_opcode opcode, size_t local, int64_t offset,
                     size_t length);

#endif  // TESTS_VM_PEER_TRANSFER_H_
