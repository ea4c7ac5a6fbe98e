// A stranger to mrd: a plain librdmacm and libibverbs program, with no code of mrd's. It connects
// to an RDMA endpoint, or listens for one, and reads and writes the memory behind it. What it sees
// is what any stock program would see. kUsage below is its manual.
//
// Output: a line for each step of connecting and for each operation, "op=NAME status=...", then
// more key=value pairs; values have no spaces. status is "ok", a verbs status or rdma_cm event by
// its own name, an errno's text, or one of mismatch, timeout, disconnected, interrupted, no_region.
// Exit code: 0 when all went as expected, 1 when not, 2 for wrong usage. No wait is without
// deadline.

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "connection.h"
#include "data.h"
#include "ops.h"
#include "util.h"

static const char kUsage[] =
    "peer --connect ADDR:PORT | --listen ADDR:PORT | --probe ADDR  [OPTION...] [OP...]\n"
    "\n"
    "  --connect ADDR:PORT  connect to a listening endpoint\n"
    "  --listen ADDR:PORT   accept one connection; port 0 takes a free one and prints it\n"
    "  --probe ADDR         only say whether rdma_cm can bind ADDR to an active device\n"
    "  --bind ADDR          source address for --connect\n"
    "  --remote-addr N, --rkey N, --length N\n"
    "                       the other side's region; what is missing comes from the\n"
    "                       connection's private data, what is given overrides it\n"
    "  --serve DATA         register memory of its own with these contents, for the other\n"
    "                       side to read and write, and send its region as private data\n"
    "  --reject             with --listen: reject the connection\n"
    "  --expect-refused     with --connect: expect that the other side refuses\n"
    "  --timeout SECONDS    deadline of each step of connecting and each operation; 10\n"
    "\n"
    "Private data, in both directions, in network byte order: u64 addr, u32 rkey, u32 length.\n"
    "\n"
    "Operations, in this order. OFFSET counts from the region's addr and may be negative; it\n"
    "is not checked here: what is out of bounds is for the other side to refuse.\n"
    "  write OFFSET DATA    RDMA WRITE\n"
    "  read OFFSET DATA     RDMA READ, and compare with DATA\n"
    "  loop SECONDS OFFSET LENGTH [--pause MS]\n"
    "                       WRITE and READ back, each time other data, until the time is\n"
    "                       over, a round fails or a SIGTERM comes\n"
    "  reads SECONDS OFFSET LENGTH   the same, but READ only, whatever is there\n"
    "  check OFFSET DATA    compare own memory (--serve) with DATA, until it is the same or\n"
    "                       the deadline is over\n"
    "  wait SECONDS         wait until the other side ends the connection\n"
    "  sleep SECONDS        do nothing, even if the connection ends\n"
    "  remote ADDR RKEY LENGTH   from now on the other side's region is this one\n"
    "  stdin SECONDS        take operations from standard input, one a line, until its end\n"
    "Flags after an operation:\n"
    "  --confirm            of write: READ the bytes back and compare. On iWARP a WRITE that\n"
    "                       completes well may yet be refused by the other side\n"
    "  --expect-error       it must fail\n"
    "\n"
    "DATA:\n"
    "  hex:BYTES            these bytes, in hexadecimal digits\n"
    "  seed:LENGTH:SEED     byte i is the low 8 bits of SEED + 131 * i + (i >> 8)\n"
    "  any:LENGTH           for reads: whatever comes; else zeros\n";

static struct options parse_options(int argc, char** argv) {
  enum {
    kConnect = 256,
    kListen,
    kProbe,
    kBind,
    kRemoteAddr,
    kRkey,
    kLength,
    kServe,
    kReject,
    kExpectRefused,
    kTimeout,
    kHelp
  };
  static const struct option kLong[] = {
      {"connect", required_argument, NULL, kConnect},
      {"listen", required_argument, NULL, kListen},
      {"probe", required_argument, NULL, kProbe},
      {"bind", required_argument, NULL, kBind},
      {"remote-addr", required_argument, NULL, kRemoteAddr},
      {"rkey", required_argument, NULL, kRkey},
      {"length", required_argument, NULL, kLength},
      {"serve", required_argument, NULL, kServe},
      {"reject", no_argument, NULL, kReject},
      {"expect-refused", no_argument, NULL, kExpectRefused},
      {"timeout", required_argument, NULL, kTimeout},
      {"help", no_argument, NULL, kHelp},
      {NULL, 0, NULL, 0},
  };
  struct options options = {.timeout = 10};
  int option;
  int64_t value;
  // "+": stop at the first operation, whose flags are its own.
  while ((option = getopt_long(argc, argv, "+", kLong, NULL)) != -1) {
    switch (option) {
      case kConnect:
        options.connect = optarg;
        break;
      case kListen:
        options.listen = optarg;
        break;
      case kProbe:
        options.probe = optarg;
        break;
      case kBind:
        options.bind = optarg;
        break;
      case kRemoteAddr:
        if (!parse_int(optarg, &value)) fail_usage("--remote-addr %s", optarg);
        options.region.addr = (uint64_t)value;
        options.have_addr = true;
        break;
      case kRkey:
        if (!parse_int(optarg, &value) || value < 0 || value > UINT32_MAX) {
          fail_usage("--rkey %s", optarg);
        }
        options.region.rkey = (uint32_t)value;
        options.have_rkey = true;
        break;
      case kLength:
        if (!parse_int(optarg, &value) || value < 0 || value > UINT32_MAX) {
          fail_usage("--length %s", optarg);
        }
        options.region.length = (uint32_t)value;
        options.have_length = true;
        break;
      case kServe:
        if (!parse_data(optarg, &options.serve)) fail_usage("--serve %s", optarg);
        options.have_serve = true;
        break;
      case kReject:
        options.reject = true;
        break;
      case kExpectRefused:
        options.expect_refused = true;
        break;
      case kTimeout:
        if (!parse_seconds(optarg, &options.timeout)) fail_usage("--timeout %s", optarg);
        break;
      case kHelp:
        fputs(kUsage, stdout);
        exit(0);
      default:
        exit(kExitUsage);
    }
  }
  int modes = (options.connect != NULL) + (options.listen != NULL) + (options.probe != NULL);
  if (modes != 1) fail_usage("one of --connect, --listen and --probe, please");
  if (options.reject && options.listen == NULL) fail_usage("--reject goes with --listen");
  if (options.expect_refused && options.connect == NULL) {
    fail_usage("--expect-refused goes with --connect");
  }
  return options;
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  struct options options = parse_options(argc, argv);
  if (options.probe != NULL) return probe(options.probe) ? 0 : kExitUnexpected;
  check_ops(&options, argc - optind, argv + optind);

  handle_stop_signals();
  struct peer peer = {.options = &options};
  bool good;
  if (!set_up(&peer)) {
    good = options.expect_refused && peer.refused;
  } else if (options.reject) {
    good = true;
  } else {
    run_ops(&peer, argc - optind, argv + optind);
    printf("op=summary done=%d unexpected=%d\n", peer.done, peer.unexpected);
    good = peer.unexpected == 0 && !options.expect_refused;
  }
  tear_down(&peer);
  free(options.serve.bytes);
  return good ? 0 : kExitUnexpected;
}
