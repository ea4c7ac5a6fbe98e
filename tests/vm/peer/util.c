#include "util.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

volatile sig_atomic_t stop_requested;

static void on_signal(int number) {
  (void)number;
  stop_requested = 1;
}

void handle_stop_signals(void) {
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int milliseconds_until(double deadline) {
  double left = deadline - now();
  return left <= 0 ? 0 : (int)(left * 1000) + 1;
}

void sleep_milliseconds(int milliseconds) { poll(NULL, 0, milliseconds); }

void fail_usage(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("peer: ", stderr);
  vfprintf(stderr, format, arguments);
  fputs("\npeer --help tells more\n", stderr);
  va_end(arguments);
  exit(kExitUsage);
}

// A value of an output line: without spaces.
const char* as_value(const char* text) {
  static char value[128];
  snprintf(value, sizeof value, "%s", text);
  for (char* c = value; *c != '\0'; ++c) {
    if (isspace((unsigned char)*c)) *c = '_';
  }
  return value;
}

bool parse_int(const char* text, int64_t* value) {
  char* end;
  errno = 0;
  // An address or a key is unsigned, an offset may be negative: accept both, keep the 64 bits.
  *value = text[0] == '-' ? strtoll(text, &end, 0) : (int64_t)strtoull(text, &end, 0);
  return errno == 0 && end != text && *end == '\0';
}

bool parse_seconds(const char* text, double* seconds) {
  char* end;
  *seconds = strtod(text, &end);
  return end != text && *end == '\0' && *seconds >= 0 && *seconds < 1e6;
}
