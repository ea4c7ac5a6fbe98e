// What a fake host has and how it fails, as text: for tests, and for programs that take it from
// MRD_FAKE_VERBS.
//
//   devices=fake0,slow0;slow0.reg_delay_ms=20000;fake0.max_mr=100;fake0.reg_errno=EIO@5
//
// Settings are separated by ';'. `devices` comes first; a setting of a device is DEVICE.NAME=VALUE:
//   transport=roce|ib|iwarp    default roce. iwarp behaves as siw: ignores iova, no atomics
//   address=IP                 default 10.99.N.1, N being its place in `devices`
//   active=0|1                 whether its port is up; default 1
//   endpoints=0|1              whether rdma_cm knows it; default 1
//   dma_buf=0|1                default 0
//   odp=0|1                    on-demand paging; default 0
//   atomics=0|1                default 1, with iwarp 0
//   max_mr, max_pd, max_qp, max_mr_size     default 2^30, 65536, 65536, 2^64-1
//   CALL_delay_ms=N            the call sleeps first
//   CALL_errno=ERRNO           every call fails
//   CALL_errno=ERRNO@N         the Nth from now fails (the first is 1)
//   CALL_errno=ERRNO@N+        the Nth and all later ones fail
// CALL is: open, query, port, pd, pd_free, reg, dereg, cq, channel, id, migrate, bind, listen,
// resolve_addr, resolve_route, qp, accept, connect. Calls that come before a device is known (open
// of the channel, id, bind, resolve_addr) take the settings of the first device.
#ifndef MRD_TESTS_FAKE_SPEC_H_
#define MRD_TESTS_FAKE_SPEC_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mrd::fake {

struct Fault {
  int error = 0;       // 0: none.
  uint64_t first = 1;  // Counted from 1.
  bool once = false;
};

struct CallSpec {
  uint64_t delay_ms = 0;
  Fault fault;
};

struct DeviceSpec {
  std::string name;
  std::string transport = "roce";
  std::string address;
  bool active = true;
  bool endpoints = true;
  bool dma_buf = false;
  bool odp = false;
  int atomics = -1;  // -1: as the transport has it.
  uint64_t max_mr = 1u << 30;
  uint64_t max_pd = 65536;
  uint64_t max_qp = 65536;
  uint64_t max_mr_size = UINT64_MAX;
  std::map<std::string, CallSpec> calls;
};

// Ends the process with a message when the text is wrong: a test that fakes something else than it
// says is worthless.
std::vector<DeviceSpec> ParseSpec(const std::string& text);

// "EIO", "EIO@5", "EIO@5+". Ends the process likewise.
Fault ParseFault(const std::string& text);

}  // namespace mrd::fake

#endif  // MRD_TESTS_FAKE_SPEC_H_
