// A stranger to mrd: a plain librdmacm and libibverbs program, with no code of mrd's, that connects
// to an RDMA endpoint (or listens for one) and reads and writes the memory behind it. What it sees
// is what any stock program would see. usage() below is its manual.
//
// Output: one line an operation, "op=NAME key=value ...", values without spaces. Exit code: 0 when
// all went as expected, 1 when not, 2 for wrong usage. No wait is without a deadline.

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const char kUsage[] =
    "peer --connect ADDR:PORT | --listen ADDR:PORT | --probe ADDR  [OPTION...] [OP...]\n"
    "\n"
    "  --connect ADDR:PORT  connect to a listening endpoint\n"
    "  --listen ADDR:PORT   accept one connection; port 0 takes a free one and prints it\n"
    "  --probe ADDR         only say whether rdma_cm can bind ADDR to an active device\n"
    "  --bind ADDR          source address for --connect\n"
    "  --remote-addr N, --rkey N, --length N\n"
    "                       the other side's region; each one that is missing comes from the\n"
    "                       connection's private data, each one that is given overrides it\n"
    "  --serve DATA         register memory of its own with these contents for reading and "
    "writing\n"
    "                       by the other side, and send its region as private data\n"
    "  --reject             with --listen: reject the connection\n"
    "  --expect-refused     with --connect: expect that no connection comes about\n"
    "  --timeout SECONDS    deadline of each wait; default 10\n"
    "\n"
    "Private data, in both directions, in network byte order: u64 addr, u32 rkey, u32 length.\n"
    "\n"
    "Operations, done in this order. OFFSET counts from the region's addr, may be negative and is "
    "not\n"
    "checked here, since out of bounds is for the other side to refuse.\n"
    "  write OFFSET DATA    RDMA WRITE\n"
    "  read OFFSET DATA     RDMA READ, and compare with DATA\n"
    "  loop SECONDS OFFSET LENGTH [--pause MS]\n"
    "                       WRITE and READ back, each time other data, until the time is over or "
    "a\n"
    "                       round fails\n"
    "  check OFFSET DATA    compare own memory (--serve) with DATA, until it is the same or the\n"
    "                       deadline is over\n"
    "  wait SECONDS         wait until the other side ends the connection\n"
    "  sleep SECONDS        do nothing, the connection's end included\n"
    "  stdin SECONDS        take operations from standard input, one a line, until its end\n"
    "Flags after an operation:\n"
    "  --confirm            write: READ the bytes back and compare. On iWARP the completion of a "
    "WRITE\n"
    "                       does not mean that the other side took it\n"
    "  --expect-error       it must fail\n"
    "\n"
    "DATA:\n"
    "  hex:BYTES            these bytes, as hexadecimal digits\n"
    "  seed:LENGTH:SEED     byte i is the low 8 bits of SEED + 131 * i + (i >> 8)\n"
    "  any:LENGTH           reads: whatever; else zeros\n";

enum {
  kExitUnexpected = 1,
  kExitUsage = 2,
  kMaxTransfer = 1 << 20,  // one work request; rxe takes up to 8 MiB in a message
  kReadDepth = 4,
  kMaxTokens = 16,
};

static const double kFlushSeconds = 1.0;  // for the event or completion that follows an error

// --- Small helpers
// ----------------------------------------------------------------------------------

static volatile sig_atomic_t stop_requested;

static void on_signal(int number) {
  (void)number;
  stop_requested = 1;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int milliseconds_until(double deadline) {
  double left = deadline - now();
  return left <= 0 ? 0 : (int)(left * 1000) + 1;
}

static void sleep_milliseconds(int milliseconds) { poll(NULL, 0, milliseconds); }

__attribute__((noreturn, format(printf, 1, 2))) static void fail_usage(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("peer: ", stderr);
  vfprintf(stderr, format, arguments);
  fputs("\npeer --help tells more\n", stderr);
  va_end(arguments);
  exit(kExitUsage);
}

// A value of an output line: without spaces.
static const char* as_value(const char* text) {
  static char value[128];
  snprintf(value, sizeof value, "%s", text);
  for (char* c = value; *c != '\0'; ++c) {
    if (isspace((unsigned char)*c)) *c = '_';
  }
  return value;
}

static bool parse_int(const char* text, int64_t* value) {
  char* end;
  errno = 0;
  // An address or a key is unsigned, an offset may be negative: accept both, keep the 64 bits.
  *value = text[0] == '-' ? strtoll(text, &end, 0) : (int64_t)strtoull(text, &end, 0);
  return errno == 0 && end != text && *end == '\0';
}

static bool parse_seconds(const char* text, double* seconds) {
  char* end;
  *seconds = strtod(text, &end);
  return end != text && *end == '\0' && *seconds >= 0 && *seconds < 1e6;
}

// --- DATA
// -------------------------------------------------------------------------------------------

struct data {
  uint8_t* bytes;
  size_t length;
  bool any;  // nothing to compare with
};

static void fill_with_seed(uint8_t* bytes, size_t length, uint64_t seed) {
  for (size_t i = 0; i < length; ++i) bytes[i] = (uint8_t)(seed + 131 * i + (i >> 8));
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = (char)tolower((unsigned char)c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_hex(const char* text, struct data* data) {
  size_t digits = strlen(text);
  if (digits == 0 || digits % 2 != 0) return false;
  data->length = digits / 2;
  data->bytes = calloc(1, data->length);
  if (data->bytes == NULL) return false;
  for (size_t i = 0; i < data->length; ++i) {
    int high = hex_digit(text[2 * i]);
    int low = hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) {
      free(data->bytes);
      return false;
    }
    data->bytes[i] = (uint8_t)(high << 4 | low);
  }
  return true;
}

static bool parse_data(const char* text, struct data* data) {
  memset(data, 0, sizeof *data);
  if (strncmp(text, "hex:", 4) == 0) return parse_hex(text + 4, data);

  char* end;
  bool any = strncmp(text, "any:", 4) == 0;
  if (!any && strncmp(text, "seed:", 5) != 0) return false;
  errno = 0;
  unsigned long long length = strtoull(text + (any ? 4 : 5), &end, 0);
  if (errno != 0 || length == 0 || length > UINT32_MAX || *end != (any ? '\0' : ':')) return false;
  int64_t seed = 0;
  if (!any && !parse_int(end + 1, &seed)) return false;
  data->length = length;
  data->any = any;
  data->bytes = calloc(1, length);
  if (data->bytes == NULL) return false;
  if (!any) fill_with_seed(data->bytes, length, (uint64_t)seed);
  return true;
}

// --- The region in the private data
// -----------------------------------------------------------------

struct region {
  uint64_t addr;
  uint32_t rkey;
  uint32_t length;
};

struct wire_region {
  uint64_t addr;
  uint32_t rkey;
  uint32_t length;
} __attribute__((packed));

static struct wire_region encode_region(const struct region* region) {
  return (struct wire_region){htobe64(region->addr), htobe32(region->rkey),
                              htobe32(region->length)};
}

// On InfiniBand and RoCE the receiver sees the private data padded with zeros to the message's
// room: a length of at least the layout's is all that can be asked for, and all zeros is none.
static bool decode_region(const void* data, size_t length, struct region* region) {
  struct wire_region wire;
  if (data == NULL || length < sizeof wire) return false;
  memcpy(&wire, data, sizeof wire);
  *region = (struct region){be64toh(wire.addr), be32toh(wire.rkey), be32toh(wire.length)};
  return region->addr != 0 || region->rkey != 0 || region->length != 0;
}

// --- The connection
// ---------------------------------------------------------------------------------

struct memory {
  uint8_t* bytes;
  size_t length;
  struct ibv_mr* mr;
};

struct options {
  const char* connect;
  const char* listen;
  const char* probe;
  const char* bind;
  bool have_addr, have_rkey, have_length;
  struct region region;
  bool have_serve;
  struct data serve;
  bool reject;
  bool expect_refused;
  double timeout;
};

struct peer {
  const struct options* options;
  struct rdma_event_channel* events;
  struct rdma_cm_id* listener;
  struct rdma_cm_id* id;
  struct ibv_pd* pd;
  struct ibv_comp_channel* completions;
  struct ibv_cq* cq;
  struct memory scratch;  // this side of transfers
  struct memory served;
  struct region remote;
  bool remote_known;
  bool connected;
  const char* ended_by;  // the event that ended the connection, or NULL
  uint64_t next_wr_id;
  int done;
  int unexpected;
};

static double op_deadline(const struct peer* peer) { return now() + peer->options->timeout; }

// Reads one event if one is there. The caller acknowledges it.
static struct rdma_cm_event* next_event(struct peer* peer) {
  struct rdma_cm_event* event;
  return rdma_get_cm_event(peer->events, &event) == 0 ? event : NULL;
}

static struct rdma_cm_event* wait_for_event(struct peer* peer, double deadline) {
  for (;;) {
    struct rdma_cm_event* event = next_event(peer);
    if (event != NULL) return event;
    int left = milliseconds_until(deadline);
    if (left == 0 || stop_requested) return NULL;
    struct pollfd fd = {peer->events->fd, POLLIN, 0};
    poll(&fd, 1, left);
  }
}

// Takes note of all events that came. Of these only an end of the connection matters.
static void handle_events(struct peer* peer) {
  struct rdma_cm_event* event;
  while ((event = next_event(peer)) != NULL) {
    if (event->id == peer->id && peer->ended_by == NULL &&
        (event->event == RDMA_CM_EVENT_DISCONNECTED ||
         event->event == RDMA_CM_EVENT_DEVICE_REMOVAL ||
         event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT)) {
      peer->ended_by = rdma_event_str(event->event);
    }
    rdma_ack_cm_event(event);
    // This moves the queue pair to error, so that work under way is flushed instead of retried.
    if (peer->ended_by != NULL && peer->connected) {
      peer->connected = false;
      rdma_disconnect(peer->id);
    }
  }
}

static bool is_up(const struct peer* peer) { return peer->connected && peer->ended_by == NULL; }

static bool wait_for_end(struct peer* peer, double deadline) {
  for (;;) {
    handle_events(peer);
    if (!is_up(peer)) return true;
    int left = milliseconds_until(deadline);
    if (left == 0 || stop_requested) return false;
    struct pollfd fd = {peer->events->fd, POLLIN, 0};
    poll(&fd, 1, left);
  }
}

static bool register_memory(struct peer* peer, struct memory* memory, size_t length, int access) {
  void* bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return false;
  struct ibv_mr* mr = ibv_reg_mr(peer->pd, bytes, length, access);
  if (mr == NULL) {
    munmap(bytes, length);
    return false;
  }
  *memory = (struct memory){bytes, length, mr};
  return true;
}

static void release_memory(struct memory* memory) {
  if (memory->mr == NULL) return;
  ibv_dereg_mr(memory->mr);
  munmap(memory->bytes, memory->length);
  memset(memory, 0, sizeof *memory);
}

// Creates what a connection needs on the device of peer->id. NULL, or what failed.
static const char* create_resources(struct peer* peer) {
  struct ibv_context* context = peer->id->verbs;
  if ((peer->pd = ibv_alloc_pd(context)) == NULL) return "ibv_alloc_pd";
  if ((peer->completions = ibv_create_comp_channel(context)) == NULL) {
    return "ibv_create_comp_channel";
  }
  fcntl(peer->completions->fd, F_SETFL, O_NONBLOCK);
  if ((peer->cq = ibv_create_cq(context, 16, NULL, peer->completions, 0)) == NULL) {
    return "ibv_create_cq";
  }
  struct ibv_qp_init_attr attributes = {
      .send_cq = peer->cq,
      .recv_cq = peer->cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
      .sq_sig_all = 1,
  };
  if (rdma_create_qp(peer->id, peer->pd, &attributes) != 0) return "rdma_create_qp";
  if (peer->options->have_serve) {
    const struct data* serve = &peer->options->serve;
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    if (!register_memory(peer, &peer->served, serve->length, access)) return "ibv_reg_mr";
    memcpy(peer->served.bytes, serve->bytes, serve->length);
  }
  return NULL;
}

static void destroy_resources(struct peer* peer) {
  if (peer->connected) {
    rdma_disconnect(peer->id);
    wait_for_end(peer, now() + kFlushSeconds);
  }
  release_memory(&peer->scratch);
  release_memory(&peer->served);
  if (peer->id != NULL && peer->id->qp != NULL) rdma_destroy_qp(peer->id);
  if (peer->cq != NULL) ibv_destroy_cq(peer->cq);
  if (peer->completions != NULL) ibv_destroy_comp_channel(peer->completions);
  if (peer->id != NULL) rdma_destroy_id(peer->id);
  if (peer->listener != NULL) rdma_destroy_id(peer->listener);
  if (peer->pd != NULL) ibv_dealloc_pd(peer->pd);
  if (peer->events != NULL) rdma_destroy_event_channel(peer->events);
}

static uint8_t smaller(int a, int b) { return (uint8_t)(a < b ? a : b); }

// `wire` must live until the parameters have been used.
static struct rdma_conn_param connection_parameters(struct peer* peer, struct wire_region* wire) {
  struct ibv_device_attr device;
  memset(&device, 0, sizeof device);
  ibv_query_device(peer->id->verbs, &device);
  struct rdma_conn_param parameters = {
      .responder_resources = smaller(kReadDepth, device.max_qp_rd_atom),
      .initiator_depth = smaller(kReadDepth, device.max_qp_init_rd_atom),
      .retry_count = 7,
      .rnr_retry_count = 7,
  };
  if (peer->served.mr != NULL) {
    struct region region = {(uintptr_t)peer->served.bytes, peer->served.mr->rkey,
                            (uint32_t)peer->served.length};
    *wire = encode_region(&region);
    parameters.private_data = wire;
    parameters.private_data_len = sizeof *wire;
  }
  return parameters;
}

static void take_region(struct peer* peer, const struct rdma_conn_param* parameters) {
  const struct options* options = peer->options;
  struct region region = {0, 0, 0};
  bool received = decode_region(parameters->private_data, parameters->private_data_len, &region);
  if (options->have_addr) region.addr = options->region.addr;
  if (options->have_rkey) region.rkey = options->region.rkey;
  if (options->have_length) region.length = options->region.length;
  peer->remote = region;
  peer->remote_known = received || (options->have_addr && options->have_rkey);
}

// ADDR, ADDR:PORT or [ADDR]:PORT.
static struct addrinfo* parse_address(const char* text, bool with_port) {
  char host[128];
  const char* port = NULL;
  if (strlen(text) >= sizeof host) fail_usage("address too long: %s", text);
  strcpy(host, text);
  if (with_port) {
    char* colon = strrchr(host, ':');
    if (colon == NULL) fail_usage("no port in %s", text);
    *colon = '\0';
    port = text + (colon - host) + 1;
  }
  char* start = host;
  size_t length = strlen(host);
  if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
    host[length - 1] = '\0';
    start = host + 1;
  }
  struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  struct addrinfo* result;
  int code = getaddrinfo(start, port, &hints, &result);
  if (code != 0) fail_usage("address %s: %s", text, gai_strerror(code));
  return result;
}

// What the set-up of a connection came to; `status` is "ok" or what went wrong.
static void report_connection(struct peer* peer, const char* op, const char* status, int detail) {
  const char* device =
      peer->id != NULL && peer->id->verbs != NULL ? peer->id->verbs->device->name : "none";
  printf("op=%s status=%s detail=%d device=%s remote_addr=0x%" PRIx64 " rkey=0x%x length=%u\n", op,
         as_value(status), detail, device, peer->remote.addr, peer->remote.rkey,
         peer->remote.length);
}

static bool fail_connection(struct peer* peer, const char* op, const char* status, int detail) {
  report_connection(peer, op, status, detail);
  return false;
}

// Waits for one event, which must be `wanted`. The caller acknowledges it.
static struct rdma_cm_event* expect_event(struct peer* peer, const char* op,
                                          enum rdma_cm_event_type wanted) {
  struct rdma_cm_event* event = wait_for_event(peer, op_deadline(peer));
  if (event == NULL) {
    report_connection(peer, op, "timeout", 0);
  } else if (event->event != wanted) {
    // For REJECTED the status is the reason: of the CM's REJ, or an errno on iWARP.
    report_connection(peer, op, rdma_event_str(event->event), event->status);
    rdma_ack_cm_event(event);
    event = NULL;
  }
  return event;
}

static bool expect_and_ack(struct peer* peer, const char* op, enum rdma_cm_event_type wanted) {
  struct rdma_cm_event* event = expect_event(peer, op, wanted);
  if (event != NULL) rdma_ack_cm_event(event);
  return event != NULL;
}

static bool connect_peer(struct peer* peer) {
  const char* op = "connect";
  int timeout_ms = (int)(peer->options->timeout * 1000);
  struct addrinfo* destination = parse_address(peer->options->connect, true);
  struct addrinfo* source =
      peer->options->bind != NULL ? parse_address(peer->options->bind, false) : NULL;
  int result = rdma_create_id(peer->events, &peer->id, NULL, RDMA_PS_TCP);
  if (result == 0) {
    result = rdma_resolve_addr(peer->id, source != NULL ? source->ai_addr : NULL,
                               destination->ai_addr, timeout_ms);
  }
  int error = errno;
  freeaddrinfo(destination);
  if (source != NULL) freeaddrinfo(source);
  if (result != 0) return fail_connection(peer, op, strerror(error), error);

  if (!expect_and_ack(peer, op, RDMA_CM_EVENT_ADDR_RESOLVED)) return false;
  if (rdma_resolve_route(peer->id, timeout_ms) != 0) {
    return fail_connection(peer, op, strerror(errno), errno);
  }
  if (!expect_and_ack(peer, op, RDMA_CM_EVENT_ROUTE_RESOLVED)) return false;
  const char* failed = create_resources(peer);
  if (failed != NULL) return fail_connection(peer, op, failed, errno);

  struct wire_region wire;
  struct rdma_conn_param parameters = connection_parameters(peer, &wire);
  if (rdma_connect(peer->id, &parameters) != 0) {
    return fail_connection(peer, op, strerror(errno), errno);
  }
  struct rdma_cm_event* event = expect_event(peer, op, RDMA_CM_EVENT_ESTABLISHED);
  if (event == NULL) return false;
  take_region(peer, &event->param.conn);
  rdma_ack_cm_event(event);
  peer->connected = true;
  report_connection(peer, op, "ok", 0);
  return true;
}

static bool listen_for_peer(struct peer* peer) {
  struct addrinfo* address = parse_address(peer->options->listen, true);
  int result = rdma_create_id(peer->events, &peer->listener, NULL, RDMA_PS_TCP);
  if (result == 0) result = rdma_bind_addr(peer->listener, address->ai_addr);
  if (result == 0) result = rdma_listen(peer->listener, 1);
  int error = errno;
  freeaddrinfo(address);
  if (result != 0) return fail_connection(peer, "listen", strerror(error), error);
  printf("op=listen status=ok port=%u\n", be16toh(rdma_get_src_port(peer->listener)));
  return true;
}

static bool accept_peer(struct peer* peer) {
  const char* op = "accept";
  struct rdma_cm_event* event = expect_event(peer, op, RDMA_CM_EVENT_CONNECT_REQUEST);
  if (event == NULL) return false;
  peer->id = event->id;
  take_region(peer, &event->param.conn);
  struct rdma_conn_param requested = event->param.conn;
  rdma_ack_cm_event(event);
  if (peer->options->reject) {
    int result = rdma_reject(peer->id, NULL, 0);
    if (result != 0) return fail_connection(peer, op, strerror(errno), errno);
    report_connection(peer, op, "rejected", 0);
    return true;
  }
  const char* failed = create_resources(peer);
  if (failed != NULL) return fail_connection(peer, op, failed, errno);

  struct wire_region wire;
  struct rdma_conn_param parameters = connection_parameters(peer, &wire);
  // Not more than the other side has.
  parameters.responder_resources =
      smaller(parameters.responder_resources, requested.responder_resources);
  parameters.initiator_depth = smaller(parameters.initiator_depth, requested.initiator_depth);
  if (rdma_accept(peer->id, &parameters) != 0) {
    return fail_connection(peer, op, strerror(errno), errno);
  }
  if (!expect_and_ack(peer, op, RDMA_CM_EVENT_ESTABLISHED)) return false;
  peer->connected = true;
  report_connection(peer, op, "ok", 0);
  return true;
}

static bool set_up(struct peer* peer) {
  peer->events = rdma_create_event_channel();
  if (peer->events == NULL) return fail_connection(peer, "open", strerror(errno), errno);
  fcntl(peer->events->fd, F_SETFL, O_NONBLOCK);
  if (peer->options->connect != NULL) return connect_peer(peer);
  return listen_for_peer(peer) && accept_peer(peer);
}

// --- Transfers
// --------------------------------------------------------------------------------------

static bool need_scratch(struct peer* peer, size_t length) {
  if (peer->scratch.length >= length) return true;
  release_memory(&peer->scratch);
  return register_memory(peer, &peer->scratch, length, IBV_ACCESS_LOCAL_WRITE);
}

// Waits for the completion of `wr_id`. "ok" or what went wrong.
static const char* wait_for_completion(struct peer* peer, uint64_t wr_id, double deadline) {
  for (;;) {
    // Armed before the queue is looked at: a completion in between wakes the poll below.
    if (ibv_req_notify_cq(peer->cq, 0) != 0) return "ibv_req_notify_cq";
    struct ibv_wc completion;
    int count;
    while ((count = ibv_poll_cq(peer->cq, 1, &completion)) > 0) {
      if (completion.wr_id != wr_id) continue;  // of an operation whose deadline had passed
      if (completion.status == IBV_WC_SUCCESS) return "ok";
      // Work is flushed because the connection ends: let the event that says so come in.
      if (completion.status == IBV_WC_WR_FLUSH_ERR) wait_for_end(peer, now() + kFlushSeconds);
      return ibv_wc_status_str(completion.status);
    }
    if (count < 0) return "ibv_poll_cq";

    bool was_up = is_up(peer);
    handle_events(peer);
    if (was_up && !is_up(peer)) {
      // The completion should follow; if it does not, the end itself is the answer.
      double flush_deadline = now() + kFlushSeconds;
      if (flush_deadline < deadline) deadline = flush_deadline;
    }
    int left = milliseconds_until(deadline);
    if (left == 0) return is_up(peer) ? "timeout" : "disconnected";
    struct pollfd fds[] = {{peer->completions->fd, POLLIN, 0}, {peer->events->fd, POLLIN, 0}};
    poll(fds, 2, left);
    struct ibv_cq* cq;
    void* context;
    while (ibv_get_cq_event(peer->completions, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
  }
}

// Moves `length` bytes between the scratch memory at `local` and the region at `offset`.
static const char* transfer(struct peer* peer, enum ibv_wr_opcode opcode, size_t local,
                            int64_t offset, size_t length) {
  double deadline = op_deadline(peer);
  for (size_t done = 0; done < length;) {
    handle_events(peer);
    if (!is_up(peer)) return "disconnected";
    size_t part = length - done < kMaxTransfer ? length - done : kMaxTransfer;
    struct ibv_sge sge = {(uintptr_t)(peer->scratch.bytes + local + done), (uint32_t)part,
                          peer->scratch.mr->lkey};
    struct ibv_send_wr request = {
        .wr_id = ++peer->next_wr_id,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = peer->remote.addr + (uint64_t)offset + done,
                    .rkey = peer->remote.rkey},
    };
    struct ibv_send_wr* bad;
    int error = ibv_post_send(peer->id->qp, &request, &bad);
    if (error != 0) {
      // The queue pair is in error already; say so rather than EINVAL, if that is why.
      wait_for_end(peer, now() + kFlushSeconds);
      return is_up(peer) ? strerror(error) : "disconnected";
    }
    const char* status = wait_for_completion(peer, request.wr_id, deadline);
    if (strcmp(status, "ok") != 0) return status;
    done += part;
  }
  return "ok";
}

// --- Operations
// -------------------------------------------------------------------------------------

struct op {
  const char* name;
  int64_t offset;
  double seconds;
  struct data data;
  size_t length;  // loop
  int pause_ms;   // loop
  bool confirm;
  bool expect_error;
};

// The first byte in which they differ, or `length`.
static size_t first_difference(const uint8_t* a, const uint8_t* b, size_t length) {
  size_t i = 0;
  while (i < length && a[i] == b[i]) ++i;
  return i;
}

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

static void do_loop(struct peer* peer, const struct op* op) {
  const char* status = "ok";
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
      status = transfer(peer, IBV_WR_RDMA_WRITE, 0, op->offset, op->length);
      if (!is_ok(status)) break;
      status = transfer(peer, IBV_WR_RDMA_READ, op->length, op->offset, op->length);
      if (!is_ok(status)) break;
      if (memcmp(sent, got, op->length) != 0) {
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

static void run_tokens(struct peer* peer, int count, char** tokens);

static void run_line(struct peer* peer, char* line) {
  char* tokens[kMaxTokens];
  int count = 0;
  char* rest = line;
  char* token;
  while ((token = strtok_r(rest, " \t\r\n", &rest)) != NULL) {
    if (count == kMaxTokens) fail_usage("too many words in a line of standard input");
    tokens[count++] = token;
  }
  if (count > 0 && tokens[0][0] != '#') run_tokens(peer, count, tokens);
}

static void do_stdin(struct peer* peer, const struct op* op) {
  double end = now() + op->seconds;
  static char buffer[1 << 16];  // one stdin at a time: lines cannot say "stdin"
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

// What follows the name, in order: s(econds), o(ffset), l(ength), d(ata).
static const struct {
  const char* name;
  const char* parameters;
  void (*run)(struct peer*, const struct op*);
} kOps[] = {
    {"write", "od", do_transfer}, {"read", "od", do_transfer}, {"loop", "sol", do_loop},
    {"check", "od", do_check},    {"wait", "s", do_wait},      {"sleep", "s", do_sleep},
    {"stdin", "s", do_stdin},
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
    int64_t length = 0;
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
    } else if (strcmp(tokens[used], "--pause") == 0 && strcmp(op->name, "loop") == 0 &&
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

static void run_tokens(struct peer* peer, int count, char** tokens) {
  struct op op;
  int index;
  for (int used = 0; used < count;) {
    used += parse_op(count - used, tokens + used, &op, &index);
    kOps[index].run(peer, &op);
    free(op.data.bytes);
  }
}

// Finds mistakes before anything is connected.
static void check_tokens(const struct options* options, int count, char** tokens) {
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

// --- Main
// -------------------------------------------------------------------------------------------

static int probe(const char* text) {
  struct addrinfo* address = parse_address(text, false);
  struct rdma_event_channel* events = rdma_create_event_channel();
  struct rdma_cm_id* id = NULL;
  const char* status = "ok";
  const char* device = "none";
  struct ibv_port_attr port;
  if (events == NULL) {
    status = "no_rdma_cm";
  } else if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP) != 0 ||
             rdma_bind_addr(id, address->ai_addr) != 0) {
    status = strerror(errno);
  } else if (id->verbs == NULL) {
    status = "no_device";  // a wildcard or loopback address binds without one
  } else {
    device = id->verbs->device->name;
    if (ibv_query_port(id->verbs, id->port_num, &port) != 0) {
      status = "ibv_query_port";
    } else if (port.state != IBV_PORT_ACTIVE) {
      status = ibv_port_state_str(port.state);
    }
  }
  printf("op=probe status=%s device=%s\n", as_value(status), device);
  int code = is_ok(status) ? 0 : kExitUnexpected;
  if (id != NULL) rdma_destroy_id(id);
  if (events != NULL) rdma_destroy_event_channel(events);
  freeaddrinfo(address);
  return code;
}

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
  if (options.probe != NULL) return probe(options.probe);
  check_tokens(&options, argc - optind, argv + optind);

  // Ends a loop or a wait early, with its line; every other wait has a short deadline anyway.
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);

  struct peer peer = {.options = &options};
  int code;
  if (!set_up(&peer)) {
    code = options.expect_refused ? 0 : kExitUnexpected;
  } else if (options.reject) {
    code = 0;
  } else {
    run_tokens(&peer, argc - optind, argv + optind);
    printf("op=summary done=%d unexpected=%d\n", peer.done, peer.unexpected);
    code = peer.unexpected == 0 && !options.expect_refused ? 0 : kExitUnexpected;
  }
  destroy_resources(&peer);
  free(options.serve.bytes);
  return code;
}
