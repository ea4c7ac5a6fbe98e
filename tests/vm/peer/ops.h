// The operations of the command line and of standard input.

#ifndef TESTS_VM_PEER_OPS_H_
#define TESTS_VM_PEER_OPS_H_

#include "connection.h"

// Finds mistakes before anything is connected; does not return if there is one.
void check_ops(const struct options* options, int count, char** tokens);

// Does them one after the other and prints a line for each; counts in peer->done and ->unexpected.
void run_ops(struct peer* peer, int count, char** tokens);

#endif  // TESTS_VM_PEER_OPS_H_
