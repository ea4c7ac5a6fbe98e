#include "tests/vm/dying/steps.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace dying {
namespace {

Control* control = nullptr;
std::atomic<bool> over = false;

[[noreturn]] void AwaitTheEnd() {
  for (;;) pause();
}

}  // namespace

void BeginSteps(Control& mapped) {
  mapped.pid = getpid();
  ++mapped.starts;
  control = &mapped;
}

void Step(const char* when, const char* what) {
  if (!control) return;
  if (over) AwaitTheEnd();  // No step is taken any more, and none is counted.
  char name[sizeof control->last_step];
  uint64_t die_at = control->die_at;
  if (die_at != 0 && control->die_what[0] != '\0') {
    snprintf(name, sizeof name, "%s %s", when, what);
    if (strcmp(name, control->die_what) != 0) return;
  }
  const uint64_t step = ++control->steps;
  // Of several threads that come to it one dies for all.
  if (die_at == 0 || step < die_at || !control->die_at.compare_exchange_strong(die_at, 0)) return;
  over = true;
  snprintf(control->last_step, sizeof control->last_step, "%s %s", when, what);
  control->die_what[0] = '\0';
  control->steps = 0;
  control->die_at = control->then_die_at.exchange(0);
  ++control->deaths;
  kill(getpid(), SIGKILL);
  AwaitTheEnd();
}

}  // namespace dying
