#include "client/mrctl/doctor.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/mrctl/admin.h"
#include "mrd/v1/status.h"
#include "mrd/v1/version.h"

namespace mrctl {
namespace {

using mrd::v1::Finding;

Finding Make(Finding::State state, std::string check, std::string text, std::string remedy) {
  Finding finding;
  finding.set_state(state);
  finding.set_check(std::move(check));
  finding.set_text(std::move(text));
  finding.set_remedy(std::move(remedy));
  return finding;
}

const char* WordOf(Finding::State state) {
  switch (state) {
    case Finding::GOOD:
      return "ok      ";
    case Finding::NOTE:
      return "note    ";
    case Finding::WARNING:
      return "WARNING ";
    default:
      return "PROBLEM ";
  }
}

constexpr size_t kColumns = 80;

// In lines of at most 80 columns, broken at spaces; all but the first begin below its text, which
// begins at `indent`. A word that is too long for a line stands alone.
std::string Wrapped(const std::string& text, size_t indent) {
  std::string wrapped;
  size_t column = indent;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!wrapped.empty()) {
      const bool fits = column + 1 + word.size() <= kColumns;
      wrapped += fits ? " " : "\n" + std::string(indent, ' ');
      column = fits ? column + 1 : indent;
    }
    absl::StrAppend(&wrapped, word);
    column += word.size();
  }
  return wrapped + "\n";
}

void Add(Findings more, Findings* all) {
  for (Finding& each : more) all->push_back(std::move(each));
}

// What the daemon itself says. False: it does not.
bool AskDaemon(const GlobalOptions& options, Findings* findings, std::string* fabric) {
  auto client = Attach(options, {.name = "mrctl doctor",
                                 .timeout = std::chrono::seconds(5),
                                 .call_timeout = std::chrono::seconds(5)});
  if (!client.ok()) {
    const auto detail = mrd::DetailOf(client.status());
    const bool refused = detail && (detail->reason() != mrd::v1::REASON_UNSPECIFIED ||
                                    detail->errno_value() == EACCES);
    if (refused) *fabric = "unknown";  // There is a daemon, and it has found its devices.
    const std::string advice = detail ? detail->advice() : "";
    std::string text(client.status().message());
    // The message alone says everything; here the advice stands below it.
    if (const size_t at = text.rfind(advice); at != text.npos) text.resize(at);
    while (!text.empty() && text.back() == ' ') text.pop_back();
    findings->push_back(
        Problem("daemon", text, advice.empty() ? "See whether mrd runs, and its log." : advice));
    return false;
  }
  *fabric = client->welcome().fabric();
  const std::string version = client->welcome().daemon_version();
  findings->push_back(Good("daemon", "version " + version + ", fabric " + *fabric));
  if (version != mrd::kVersion) {
    findings->push_back(
        Told("version", "mrctl is " + std::string(mrd::kVersion) + ", the daemon " + version));
  }
  const auto status = client->GetStatus({.survival = true});
  if (!status.ok()) {
    findings->push_back(Problem("calls", std::string(status.status().message()),
                                "The socket mrd.sock does not answer: see the daemon's log."));
    return true;
  }
  const auto& session = status->session();
  if (session.pid() == 0) {
    findings->push_back(
        Told("pid",
             "hidden from the daemon (another pid namespace): rules by cgroup do not match "
             "here, and the end of a process is known by " +
                 session.death()));
  } else {
    findings->push_back(Good("identity", "uid " + std::to_string(session.uid()) + ", pid " +
                                             std::to_string(session.pid()) +
                                             "; its end is known by " + session.death()));
  }
  if (status->has_drain()) {
    findings->push_back(Warning("drain", DrainText(status->drain(), time(nullptr)),
                                "When the work is done: mrctl drain --undo"));
  }
  for (const auto& quota : status->quotas()) {
    if (quota.limit() == 0 || quota.used() < quota.limit() - quota.limit() / 10) continue;
    findings->push_back(Warning("limits",
                                quota.name() + ": " + std::to_string(quota.used()) + " of " +
                                    std::to_string(quota.limit()) + " are used",
                                "End what is not needed, or raise the limit in the policy."));
  }
  const auto devices = client->ListDevices();
  if (!devices.ok()) {
    findings->push_back(Problem("devices", std::string(devices.status().message()), ""));
    return true;
  }
  Add(CheckDevices(*fabric, *devices), findings);
  Add(CheckAllowed(status->policy(), *devices), findings);
  Add(CheckSurvival(*status), findings);
  return true;
}

}  // namespace

Finding Good(std::string check, std::string text) {
  return Make(Finding::GOOD, std::move(check), std::move(text), "");
}
Finding Told(std::string check, std::string text) {
  return Make(Finding::NOTE, std::move(check), std::move(text), "");
}
Finding Warning(std::string check, std::string text, std::string remedy) {
  return Make(Finding::WARNING, std::move(check), std::move(text), std::move(remedy));
}
Finding Problem(std::string check, std::string text, std::string remedy) {
  return Make(Finding::PROBLEM, std::move(check), std::move(text), std::move(remedy));
}

std::string DoctorText(const Findings& findings) {
  size_t widest = 0;
  for (const Finding& each : findings) widest = std::max(widest, each.check().size());
  std::string text;
  size_t problems = 0;
  size_t warnings = 0;
  for (const Finding& each : findings) {
    problems += each.state() == Finding::PROBLEM;
    warnings += each.state() == Finding::WARNING;
    text += WordOf(each.state()) + each.check() + std::string(widest - each.check().size(), ' ') +
            "  " + Wrapped(each.text(), 10 + widest);
    // Below its text, so that it is seen whose it is.
    if (each.remedy().empty()) continue;
    text += std::string(10 + widest, ' ') + "-> " + Wrapped(each.remedy(), 13 + widest);
  }
  const auto count = [](size_t number, const std::string& what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
  };
  return text + "\n" + count(problems, "problem") + ", " + count(warnings, "warning") + "\n";
}

int RunDoctor(const GlobalOptions& options) {
  Findings findings;
  const char* const environment = getenv("MRD_SOCKET_DIR");
  const std::string dir = !options.socket_dir.empty()   ? options.socket_dir
                          : environment && *environment ? environment
                                                        : "/run/mrd";
  Add(CheckSockets(dir), &findings);
  std::string fabric;
  const bool answers = AskDaemon(options, &findings, &fabric);
  const bool verbs = fabric.empty() || fabric == "verbs";
  if (answers) Add(CheckProcess(ReadProcess("/proc", DaemonPid(dir)), verbs), &findings);
  Add(CheckKernel(ReadKernel(), verbs), &findings);
  const bool problem = std::any_of(findings.begin(), findings.end(), [](const Finding& each) {
    return each.state() == Finding::PROBLEM;
  });
  int printed;
  if (options.json) {
    mrd::v1::DoctorReport report;
    report.mutable_findings()->Add(findings.begin(), findings.end());
    printed = PrintJson(options, report);
  } else {
    printed = Print(options, DoctorText(findings));
  }
  return printed != kOk ? printed : problem ? kRefused : kOk;
}

}  // namespace mrctl
