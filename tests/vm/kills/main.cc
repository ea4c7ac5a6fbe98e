// kills CONTROL SECOND_MS EVERY ONLY DEVICE=ADDRESS...
//
// Kills the daemon at its first step of an operation, has it done again and kills it at the second,
// and so on until it comes to the operation's end; and that with every operation. After each death,
// once another daemon serves: the kernel has what the books list, and clients what is theirs, one
// by one; the operation was answered; clients go on; and once they have left nothing is left.
//
// CONTROL: the file of a running dying_mrd. EVERY: on devices after the first one only each such
// step, 1: each. ONLY: operations that have this in their name. One line an operation; the exit
// status is 0 only when all was well.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/vm/dying/control.h"
#include "tests/vm/kills/operations.h"
#include "tests/vm/kills/world.h"

namespace kills {
namespace {

constexpr std::chrono::milliseconds kQuiet{30};
constexpr uint64_t kMostSteps = 2'000;
constexpr int kMostFailures = 3;  // Of one operation.

absl::Status Annotated(const char* when, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(when, ": ", status.message()));
}

// One operation, cut short at one step.
class Trial {
 public:
  Trial(World& world, const Operation& operation, uint64_t step)
      : scene_{world}, operation_(operation), step_(step), control_(world.control()) {}

  absl::Status Run() {
    if (operation_.prepare) {
      absl::Status prepared = operation_.prepare(scene_);
      if (!prepared.ok()) return Annotated("before it", prepared);
    }
    const uint64_t before = Arm();
    const absl::Status answer = operation_.act(scene_);
    const absl::Status settled = operation_.settle ? operation_.settle(scene_) : absl::OkStatus();
    AwaitQuiet();
    Disarm();
    const uint64_t deaths = control_.deaths - before;
    died_ = deaths == (operation_.first.empty() ? 1 : 2);
    steps_ = control_.steps;
    if (!operation_.first.empty() && deaths == 0) {
      return absl::InternalError("the daemon did not die before it");
    }
    // Where it lived it has no excuse.
    if (!answer.ok() && !(operation_.may_fail && deaths > 0)) return Annotated("it", answer);
    if (!settled.ok()) return Annotated("after it", settled);
    absl::Status agrees = scene_.world.Agree(scene_.holders, operation_.may_end);
    if (!agrees.ok()) return agrees;
    return Annotated("afterwards", ClientsGoOn());
  }

  // Everybody leaves.
  absl::Status End() {
    Disarm();
    for (Holder& holder : scene_.holders) {
      if (holder.client) holder.client->Detach();
    }
    scene_.holders.clear();
    scene_.victim.reset();
    return Annotated("at rest", scene_.world.AtRest());
  }

  bool died() const { return died_; }
  uint64_t steps() const { return steps_; }

 private:
  uint64_t Arm() {
    const uint64_t deaths = control_.deaths;
    control_.steps = 0;
    if (operation_.first.empty()) {
      control_.die_at = step_;
    } else {
      control_.then_die_at = step_;
      snprintf(control_.die_what, sizeof control_.die_what, "%s", operation_.first.c_str());
      control_.die_at = operation_.first_at;
    }
    return deaths;
  }

  void Disarm() {
    control_.then_die_at = 0;
    control_.die_at = 0;
    control_.die_what[0] = '\0';
  }

  // What nobody waits for is done too.
  void AwaitQuiet() {
    uint64_t seen;
    do {
      seen = control_.steps;
      std::this_thread::sleep_for(kQuiet);
    } while (seen != control_.steps);
  }

  absl::Status ClientsGoOn() {
    for (Holder& holder : scene_.holders) {
      {
        const std::lock_guard lock(holder.told->mutex);
        if (holder.told->gone) continue;
      }
      const size_t before = holder.regions.size();
      if (absl::Status made = Register(holder, Options(""), 1); !made.ok()) return made;
      if (absl::Status ended = holder.regions.back().Deregister(); !ended.ok()) return ended;
      holder.regions.resize(before);
    }
    return absl::OkStatus();
  }

  Scene scene_;
  const Operation& operation_;
  const uint64_t step_;
  dying::Control& control_;
  bool died_ = false;
  uint64_t steps_ = 0;
};

// False: something is left that nobody has, and what comes next could not be told from it.
bool Sweep(World& world, const std::string& where, const Operation& operation, uint64_t every,
           int* failed) {
  dying::Control& control = world.control();
  const auto began = Clock::now();
  uint64_t deaths = 0, steps = 0;
  int failures = 0;
  bool at_rest = true, over = false;
  for (uint64_t step = 1; !over && at_rest && failures < kMostFailures; step += every) {
    if (step > kMostSteps) {
      printf("        | it has no end\n");
      ++failures;
      break;
    }
    Trial trial(world, operation, step);
    absl::Status status = trial.Run();
    const std::string last = trial.died() ? control.last_step : "no step";
    absl::Status ended = trial.End();
    at_rest = ended.ok();
    if (status.ok()) status = ended;
    deaths += trial.died();
    steps = trial.steps();
    over = status.ok() && !trial.died();
    if (!status.ok()) {
      ++failures;
      printf("        | killed at step %lu (%s): %s\n", static_cast<unsigned long>(step),
             last.c_str(), std::string(status.message()).c_str());
    }
    fflush(stdout);
  }
  // One that has no steps is not what it is said to be.
  const bool good = failures == 0 && deaths > 0 && control.ends == 0;
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
  printf("%s  %s: %s: killed at %lu of %lu steps (%ld ms)\n", good ? "ok    " : "FAILED",
         where.c_str(), operation.name.c_str(), static_cast<unsigned long>(deaths),
         static_cast<unsigned long>(std::max(steps, deaths)), static_cast<long>(took.count()));
  fflush(stdout);
  *failed += !good;
  return at_rest && control.ends == 0;
}

int Run(World& world, const std::vector<std::string>& devices, uint64_t every,
        const std::string& only) {
  struct Wanted {
    std::string where;
    Operation operation;
    uint64_t every;
  };
  std::vector<Wanted> all;
  const auto add = [&](const std::string& where, std::vector<Operation> some, uint64_t each_step) {
    for (Operation& each : some) {
      if (each.name.find(only) == std::string::npos) continue;
      all.push_back({where, std::move(each), each_step});
    }
  };
  add("all devices", SessionOperations(devices.front()), 1);
  for (const std::string& device : devices) {
    const uint64_t each_step = device == devices.front() ? 1 : every;
    add(device, LeaseOperations(device), each_step);
    add(device, EndpointOperations(device), each_step);
    add(device, AdoptionOperations(device), each_step);
  }
  int failed = all.empty();
  for (const Wanted& each : all) {
    if (Sweep(world, each.where, each.operation, each.every, &failed)) continue;
    printf("FAILED  the daemon does not come to rest\n");
    return 1;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kills

int main(int argc, char** argv) {
  if (argc < 6) {
    fprintf(stderr, "kills CONTROL SECOND_MS EVERY ONLY DEVICE=ADDRESS...\n");
    return 2;
  }
  dying::Control* const control = dying::MapControl(argv[1]);
  if (!control) {
    fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
    return 2;
  }
  const std::chrono::milliseconds second(strtoul(argv[2], nullptr, 10));
  const uint64_t every = std::max(strtoul(argv[3], nullptr, 10), 1ul);
  std::map<std::string, std::string> addresses;
  std::vector<std::string> devices;
  for (int i = 5; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t at = word.find('=');
    if (at == std::string::npos) return 2;
    devices.push_back(word.substr(0, at));
    addresses[devices.back()] = word.substr(at + 1);
  }
  kills::World world(*control, addresses, second);
  if (absl::Status rest = world.AtRest(); !rest.ok()) {
    printf("FAILED  at first: %s\n", std::string(rest.message()).c_str());
    return 1;
  }
  return kills::Run(world, devices, every, argv[4]);
}
