// Clients in a row that each attach, register ten regions and die by SIGKILL at a random moment.
//
//   churn_client DIR COUNT SEED
//
// Prints how many of them had attached and how many had registered when they died. Forks before it
// makes any thread, so each client is a process of its own that has done nothing yet.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "client/client.h"

namespace {

using Clock = std::chrono::steady_clock;

void Must(bool holds, const char* what) {
  if (holds) return;
  perror(what);
  abort();
}

// Writes a letter for each thing done, then waits for its end.
[[noreturn]] void RunClient(const char* dir, int progress) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto client = mrd::Client::Attach({.socket_dir = dir, .name = "churn"});
  Must(client.ok(), "attach");
  Must(write(progress, "a", 1) == 1, "write");
  auto buffer = client->CreateBuffer(10 * 4096);
  Must(buffer.ok(), "buffer");
  std::vector<mrd::Range> ranges;
  for (uint64_t i = 0; i < 10; ++i) ranges.emplace_back(*buffer, i * 4096, 4096);
  auto regions = client->Register({.preset = mrd::v1::Access::REG_WRITE}, ranges);
  Must(regions.ok(), "register");
  Must(write(progress, "r", 1) == 1, "write");
  for (;;) pause();
}

struct Fate {
  bool attached = false;
  bool registered = false;
};

// `moment` after its start; zero: when all is done, and then *took says after how long.
Fate RunOne(const char* dir, std::chrono::microseconds moment, std::chrono::microseconds* took) {
  int progress[2];
  Must(pipe(progress) == 0, "pipe");
  const auto start = Clock::now();
  const pid_t pid = fork();
  Must(pid >= 0, "fork");
  if (pid == 0) {
    close(progress[0]);
    RunClient(dir, progress[1]);
  }
  close(progress[1]);
  Fate fate;
  const auto take = [&](char done) {
    fate.attached |= done == 'a';
    fate.registered |= done == 'r';
  };
  char done;
  if (moment.count() == 0) {
    while (!fate.registered && read(progress[0], &done, 1) == 1) take(done);
    *took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
  } else {
    std::this_thread::sleep_until(start + moment);
  }
  kill(pid, SIGKILL);
  int status;
  Must(waitpid(pid, &status, 0) == pid, "waitpid");
  Must(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
       "a client that lives until it is killed");
  while (read(progress[0], &done, 1) == 1) take(done);
  close(progress[0]);
  return fate;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int count = atoi(argv[2]);
  std::mt19937 random(atoi(argv[3]));
  // How long a whole life takes here: the shortest of some.
  std::chrono::microseconds life = std::chrono::hours(1);
  for (int i = 0; i < 5; ++i) {
    std::chrono::microseconds took{};
    Must(RunOne(argv[1], {}, &took).registered, "a whole life");
    life = std::min(life, took);
  }
  int attached = 0;
  int registered = 0;
  std::uniform_int_distribution<int64_t> moments(1, life.count() * 3 / 2);
  for (int i = 0; i < count; ++i) {
    const Fate fate = RunOne(argv[1], std::chrono::microseconds(moments(random)), nullptr);
    attached += fate.attached;
    registered += fate.registered;
  }
  printf("%d %d\n", attached, registered);
  return 0;
}
