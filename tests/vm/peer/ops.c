#include "ops.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data.h"
#include "transfer.h"
#include "util.h"

enum { kMaxTokens = 16 };  // in a line of standard input

struct op {
  const char* name;
  int64_t offset;
  double seconds;
  struct data data;
  size_t length;  // loop, reads
  int pause_ms;   // loop, reads
  uint64_t address;
  uint32_t key;
  bool confirm;
  bool expect_error;
};

static bool is_ok(const char* status) { return strcmp(status, "ok") == 0; }

// Starts the line of an operation, whose own keys follow, and books it.
static void begin_line(struct peer* peer, const struct op* op, const char* status) {
  bool as_expected = is_ok(status) != op->expect_error;
  peer->done += 1;
  peer->unexpected += as_expected ? 0 : 1;
  printf("op=%s status=%s expected=%s connection=%s", op->name, as_value(status),
         as_expected ? "yes" : "no", is_up(peer) ? "up" : "down");
}

static void end_line(void) {
  putchar('\n');
  fflush(stdout);
}

// READs op->data.length bytes and compares them with op->data. Leaves them at scratch[0], and in
// `difference` where the first wrong byte is.
static const char* read_and_compare(struct peer* peer, const struct op* op, size_t* difference) {
  size_t length = op->data.length;
  *difference = length;
  // Other bytes than the expected ones, so that a READ that moved nothing is found out.
  for (size_t i = 0; i < length; ++i) peer->scratch.bytes[i] = (uint8_t)~op->data.bytes[i];
  const char* status = transfer(peer, IBV_WR_RDMA_READ, 0, op->offset, length);
  if (!is_ok(status) || op->data.any) return status;
  *difference = first_difference(peer->scratch.bytes, op->data.bytes, length);
  return *difference == length ? "ok" : "mismatch";
}

static void do_transfer(struct peer* peer, const struct op* op) {
  bool is_write = strcmp(op->name, "write") == 0;
  size_t length = op->data.length;
  size_t difference = length;
  const char* status = "ok";
  const char* write_status = NULL;
  bool have_bytes = false;
  if (!peer->remote_known) {
    status = "no_region";
  } else if (!need_scratch(peer, length)) {
    status = "ibv_reg_mr";
  } else {
    if (is_write) {
      memcpy(peer->scratch.bytes, op->data.bytes, length);
      status = write_status = transfer(peer, IBV_WR_RDMA_WRITE, 0, op->offset, length);
    }
    if (!is_write || (op->confirm && is_ok(status))) {
      status = read_and_compare(peer, op, &difference);
      have_bytes = is_ok(status) || difference < length;
    }
  }
  begin_line(peer, op, status);
  printf(" offset=%" PRId64 " length=%zu", op->offset, length);
  if (write_status != NULL && op->confirm) printf(" write_status=%s", as_value(write_status));
  if (difference < length) printf(" differs_at=%zu", difference);
  if (have_bytes) {
    size_t start = difference < length ? difference : 0;
    printf(" data=");
    for (size_t i = start; i < length && i < start + 32; ++i) {
      printf("%02x", peer->scratch.bytes[i]);
    }
  }
  end_line();
}

static void do_remote(struct peer* peer, const struct op* op) {
  peer->remote = (struct region){op->address, op->key, (uint32_t)op->length};
  peer->remote_known = true;
  begin_line(peer, op, "ok");
  end_line();
}

static void do_loop(struct peer* peer, const struct op* op) {
  const char* status = "ok";
  bool writes = strcmp(op->name, "loop") == 0;
  long rounds = 0;
  double longest = 0;
  if (!peer->remote_known) {
    status = "no_region";
  } else if (!need_scratch(peer, 2 * op->length)) {
    status = "ibv_reg_mr";
  } else {
    double end = now() + op->seconds;
    uint8_t* sent = peer->scratch.bytes;
    uint8_t* got = sent + op->length;
    while (now() < end && !stop_requested) {
      double start = now();
      fill_with_seed(sent, op->length, (uint64_t)rounds * 7 + 1);
      memset(got, 0, op->length);
      if (writes) status = transfer(peer, IBV_WR_RDMA_WRITE, 0, op->offset, op->length);
      if (!is_ok(status)) break;
      status = transfer(peer, IBV_WR_RDMA_READ, op->length, op->offset, op->length);
      if (!is_ok(status)) break;
      if (writes && memcmp(sent, got, op->length) != 0) {
        status = "mismatch";
        break;
      }
      double took = now() - start;
      if (took > longest) longest = took;
      ++rounds;
      if (op->pause_ms > 0) sleep_milliseconds(op->pause_ms);
    }
  }
  begin_line(peer, op, status);
  printf(" offset=%" PRId64 " length=%zu rounds_ok=%ld rounds_failed=%d longest_ms=%.1f",
         op->offset, op->length, rounds, is_ok(status) ? 0 : 1, longest * 1e3);
  end_line();
}

static void do_check(struct peer* peer, const struct op* op) {
  double deadline = op_deadline(peer);
  const char* status = "ok";
  size_t length = op->data.length;
  size_t difference = length;
  if (op->offset < 0 || (uint64_t)op->offset > peer->served.length ||
      length > peer->served.length - (uint64_t)op->offset) {
    status = "out_of_range";
  } else if (!op->data.any) {
    // The other side's WRITE may still be on its way.
    const uint8_t* bytes = peer->served.bytes + op->offset;
    while ((difference = first_difference(bytes, op->data.bytes, length)) < length) {
      handle_events(peer);
      if (milliseconds_until(deadline) == 0 || stop_requested) {
        status = "mismatch";
        break;
      }
      sleep_milliseconds(5);
    }
  }
  begin_line(peer, op, status);
  printf(" offset=%" PRId64 " length=%zu", op->offset, length);
  if (difference < length) printf(" differs_at=%zu", difference);
  end_line();
}

static void do_wait(struct peer* peer, const struct op* op) {
  bool ended = wait_for_end(peer, now() + op->seconds);
  begin_line(peer, op, ended ? "ok" : stop_requested ? "interrupted" : "timeout");
  if (peer->ended_by != NULL) printf(" event=%s", peer->ended_by);
  end_line();
}

static void do_sleep(struct peer* peer, const struct op* op) {
  double end = now() + op->seconds;
  int left;
  while ((left = milliseconds_until(end)) > 0 && !stop_requested) sleep_milliseconds(left);
  handle_events(peer);
  begin_line(peer, op, "ok");
  end_line();
}

static void run_line(struct peer* peer, char* line) {
  char* tokens[kMaxTokens];
  int count = 0;
  char* rest = line;
  char* token;
  while ((token = strtok_r(rest, " \t\r\n", &rest)) != NULL) {
    if (count == kMaxTokens) fail_usage("too many words in a line of standard input");
    tokens[count++] = token;
  }
  if (count == 0 || tokens[0][0] == '#') return;
  for (int i = 0; i < count; ++i) {
    if (strcmp(tokens[i], "stdin") == 0) fail_usage("stdin from standard input");
  }
  run_ops(peer, count, tokens);
}

static void do_stdin(struct peer* peer, const struct op* op) {
  double end = now() + op->seconds;
  static char buffer[1 << 16];  // there is one stdin at a time: run_line sees to it
  size_t used = 0;
  const char* status = "ok";
  for (;;) {
    int left = milliseconds_until(end);
    struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {peer->events->fd, POLLIN, 0}};
    poll(fds, 2, left);
    if (stop_requested || left == 0) {
      status = stop_requested ? "interrupted" : "timeout";
      break;
    }
    if (fds[1].revents != 0) handle_events(peer);
    if (fds[0].revents == 0) continue;
    ssize_t count = read(STDIN_FILENO, buffer + used, sizeof buffer - 1 - used);
    if (count <= 0) break;
    used += (size_t)count;
    buffer[used] = '\0';
    char* start = buffer;
    char* newline;
    while ((newline = strchr(start, '\n')) != NULL) {
      *newline = '\0';
      run_line(peer, start);
      start = newline + 1;
    }
    used -= (size_t)(start - buffer);
    memmove(buffer, start, used + 1);
    if (used == sizeof buffer - 1) fail_usage("a line of standard input is too long");
  }
  if (used > 0) run_line(peer, buffer);
  begin_line(peer, op, status);
  end_line();
}

// What follows the name, in order: s(econds), o(ffset), l(ength), d(ata), a(ddress), k(ey).
static const struct {
  const char* name;
  const char* parameters;
  void (*run)(struct peer*, const struct op*);
} kOps[] = {
    {"write", "od", do_transfer}, {"read", "od", do_transfer}, {"loop", "sol", do_loop},
    {"reads", "sol", do_loop},    {"check", "od", do_check},   {"wait", "s", do_wait},
    {"sleep", "s", do_sleep},     {"stdin", "s", do_stdin},    {"remote", "akl", do_remote},
};

enum { kOpCount = sizeof kOps / sizeof kOps[0] };

static int find_op(const char* name) {
  for (int i = 0; i < kOpCount; ++i) {
    if (strcmp(kOps[i].name, name) == 0) return i;
  }
  fail_usage("no such operation: %s", name);
}

// Parses one operation from the front of `tokens`: how many tokens it took, and which it is.
static int parse_op(int count, char** tokens, struct op* op, int* index) {
  memset(op, 0, sizeof *op);
  *index = find_op(tokens[0]);
  op->name = kOps[*index].name;
  int used = 1;
  for (const char* parameter = kOps[*index].parameters; *parameter != '\0'; ++parameter) {
    if (used == count) fail_usage("%s: something is missing", op->name);
    const char* token = tokens[used++];
    int64_t length = 0, number = 0;
    bool good = false;
    switch (*parameter) {
      case 's':
        good = parse_seconds(token, &op->seconds);
        break;
      case 'o':
        good = parse_int(token, &op->offset);
        break;
      case 'l':
        good = parse_int(token, &length) && length > 0 && length <= 1 << 30;
        op->length = (size_t)length;
        break;
      case 'a':
        good = parse_int(token, &number);
        op->address = (uint64_t)number;
        break;
      case 'k':
        good = parse_int(token, &number) && number >= 0 && number <= UINT32_MAX;
        op->key = (uint32_t)number;
        break;
      case 'd':
        good = parse_data(token, &op->data);
        break;
    }
    if (!good) fail_usage("%s: what is %s?", op->name, token);
  }
  for (; used < count && tokens[used][0] == '-'; ++used) {
    int64_t pause;
    if (strcmp(tokens[used], "--confirm") == 0 && strcmp(op->name, "write") == 0) {
      op->confirm = true;
    } else if (strcmp(tokens[used], "--expect-error") == 0) {
      op->expect_error = true;
    } else if (strcmp(tokens[used], "--pause") == 0 && kOps[*index].run == do_loop &&
               used + 1 < count && parse_int(tokens[used + 1], &pause) && pause >= 0 &&
               pause <= 60000) {
      op->pause_ms = (int)pause;
      ++used;
    } else {
      fail_usage("%s: what is %s?", op->name, tokens[used]);
    }
  }
  return used;
}

void run_ops(struct peer* peer, int count, char** tokens) {
  struct op op;
  int index;
  for (int used = 0; used < count;) {
    used += parse_op(count - used, tokens + used, &op, &index);
    kOps[index].run(peer, &op);
    free(op.data.bytes);
  }
}

void check_ops(const struct options* options, int count, char** tokens) {
  struct op op;
  int index;
  for (int used = 0; used < count;) {
    used += parse_op(count - used, tokens + used, &op, &index);
    if (kOps[index].run == do_check && !options->have_serve) {
      fail_usage("check needs --serve");
    }
    free(op.data.bytes);
  }
}
