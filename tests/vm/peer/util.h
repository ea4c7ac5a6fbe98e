// Clock, signals, numbers and words: what every part of the peer uses.

#ifndef TESTS_VM_PEER_UTIL_H_
#define TESTS_VM_PEER_UTIL_H_

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { kExitUnexpected = 1, kExitUsage = 2 };

// Set by SIGINT and SIGTERM: loops and waits end early, with their line.
extern volatile sig_atomic_t stop_requested;
void handle_stop_signals(void);

// Seconds of CLOCK_MONOTONIC; a deadline is such a time.
double now(void);
// At least 1 before the deadline, 0 after it.
int milliseconds_until(double deadline);
void sleep_milliseconds(int milliseconds);

// `text` as the value of an output line: without spaces. Valid until the next call.
const char* as_value(const char* text);

// Decimal or 0x; up to 64 bits unsigned, or negative. False if `text` is anything else.
bool parse_int(const char* text, int64_t* value);
bool parse_seconds(const char* text, double* seconds);

__attribute__((noreturn, format(printf, 1, 2))) void fail_usage(const char* format, ...);

#endif  // TESTS_VM_PEER_UTIL_H_
