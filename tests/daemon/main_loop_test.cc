// A daemon whose main loop the system does not let work ends, and says so.
#include <errno.h>
#include <gtest/gtest.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "tests/fake/fake_verbs.h"

namespace {
int of_add_signal = 0, of_loop = 0;
}

// In place of libsystemd's.
extern "C" int sd_event_add_signal(sd_event*, sd_event_source**, int, sd_event_signal_handler_t,
                                   void*) {
  return of_add_signal;
}
extern "C" int sd_event_loop(sd_event*) { return of_loop; }

namespace mrd {
namespace {

class MainLoop : public testing::Test {
 protected:
  MainLoop() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  // In a child: its exit status is the daemon's.
  [[noreturn]] void Run(int add_signal, int loop) {
    of_add_signal = add_signal;
    of_loop = loop;
    // A socket's path is short.
    if (chdir(testing::TempDir().c_str()) != 0) _exit(2);
    fake::FakeVerbs verbs;
    Options options;
    options.sockets.dir = "main_loop";
    options.fabric = "soft";
    _exit(RunDaemon(options, verbs));
  }
};

TEST_F(MainLoop, EndsInOrder) { EXPECT_EXIT(Run(0, 0), testing::ExitedWithCode(0), "ended"); }

TEST_F(MainLoop, WithoutItsSignalsIsAnError) {
  EXPECT_EXIT(Run(-EMFILE, 0), testing::ExitedWithCode(1),
              "cannot take the signal Terminated: Too many open files");
}

TEST_F(MainLoop, ThatFailsIsAnError) {
  EXPECT_EXIT(Run(0, -EIO), testing::ExitedWithCode(1), "the main loop failed: Input/output error");
}

}  // namespace
}  // namespace mrd
