// DATA of the command line: bytes to write, or to compare with.

#ifndef TESTS_VM_PEER_DATA_H_
#define TESTS_VM_PEER_DATA_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct data {
  uint8_t* bytes;  // to be freed by the owner
  size_t length;   // 1 to 2^32 - 1
  bool any;        // nothing to compare with; the bytes are zeros
};

// Parses "hex:", "seed:" and "any:" (see the usage). False, with nothing to free, if `text` is
// none.
bool parse_data(const char* text, struct data* data);

// Byte i becomes the low 8 bits of seed + 131 * i + (i >> 8): no page looks like its neighbour.
void fill_with_seed(uint8_t* bytes, size_t length, uint64_t seed);

// The first byte in which they differ, or `length`.
size_t first_difference(const uint8_t* a, const uint8_t* b, size_t length);

#endif  // TESTS_VM_PEER_DATA_H_
