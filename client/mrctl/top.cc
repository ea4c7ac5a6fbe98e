#include "client/mrctl/top.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <thread>
#include <utility>

#include "client/mrctl/terminal.h"
#include "client/mrctl/top_view.h"
#include "daemon/broker/policy/text.h"

namespace mrctl {
namespace {

using std::chrono::milliseconds;

// Keys wait for a call that the daemon does not answer.
constexpr std::chrono::seconds kCallTimeout{3};

// The daemon's word, over a session that is made anew where it was lost.
class Source final {
 public:
  // `on_loss`: whether calls wait for a daemon that is restarted, or fail at once.
  Source(const GlobalOptions& options, mrd::OnLoss on_loss)
      : options_(options), on_loss_(on_loss) {}

  absl::Status Sample(TopModel* model) {
    if (client_ && !client_->SessionStatus().ok()) client_.reset();
    if (!client_) {
      auto client = Attach(options_, {.name = "mrctl top",
                                      .timeout = kCallTimeout,
                                      .call_timeout = kCallTimeout,
                                      .on_loss = on_loss_});
      if (!client.ok()) return client.status();
      client_ = std::move(*client);
    }
    auto status = client_->GetStatus();
    if (!status.ok()) return status.status();
    auto sessions = client_->ListSessions();
    if (!sessions.ok()) return sessions.status();
    model->Take(TopModel::Clock::now(), std::move(*status), std::move(*sessions));
    return absl::OkStatus();
  }

  uint64_t session_id() const { return client_ ? client_->session_id() : 0; }

 private:
  const GlobalOptions& options_;
  const mrd::OnLoss on_loss_;
  std::optional<mrd::Client> client_;
};

int RunOnce(const GlobalOptions& options, const TopCommand& command, Source& source) {
  TopModel model;
  for (int i = 0; i < 2; ++i) {
    if (i > 0) std::this_thread::sleep_for(command.interval);
    if (absl::Status sampled = source.Sample(&model); !sampled.ok()) return Fail(options, sampled);
  }
  model.Sort(command.order, /*reverse=*/false);
  if (options.json) return PrintJson(options, model.sample());
  const TopLook look{.order = command.order, .columns = WidthOf(STDOUT_FILENO)};
  return Print(options, DrawTop(model, look, time(nullptr), source.session_id()));
}

// A line a sample, until nobody reads them or the daemon has gone.
int RunJson(const GlobalOptions& options, const TopCommand& command, Source& source) {
  TopModel model;
  for (;; std::this_thread::sleep_for(command.interval)) {
    if (absl::Status sampled = source.Sample(&model); !sampled.ok()) return Fail(options, sampled);
    model.Sort(command.order, /*reverse=*/false);
    const int printed = Print(options, ToJson(model.sample()) + "\n");
    if (printed != kOk) return printed;
  }
}

int RunLive(const GlobalOptions& options, const TopCommand& command, Source& source) {
  // What cannot be done at all is said on the terminal as it was.
  TopModel model;
  if (absl::Status sampled = source.Sample(&model); !sampled.ok()) return Fail(options, sampled);
  Screen screen;
  if (!screen.status().ok()) return Fail(options, screen.status());
  TopLook look{.order = command.order, .color = true};
  auto next = TopModel::Clock::now() +
              std::min<std::chrono::nanoseconds>(command.interval, milliseconds(300));
  for (;;) {
    const ScreenSize size = Screen::Size();
    look.columns = size.columns;
    look.rows = size.rows;
    model.Sort(look.order, look.reverse);
    if (!screen.Show(DrawTop(model, look, time(nullptr), source.session_id()))) return kOk;
    char key = 0;
    const auto left = std::chrono::ceil<milliseconds>(next - TopModel::Clock::now());
    switch (screen.Wait(std::max(left, milliseconds(0)), &key)) {
      case Screen::Event::kEnd:
        return kOk;
      case Screen::Event::kResized:
        continue;
      case Screen::Event::kKey:
        if (key == 'q' || key == 'Q') return kOk;
        if (key == 'i') look.reverse = !look.reverse;
        OrderOfKey(key, &look.order);
        if (key != ' ') continue;  // It looks at once.
        break;
      case Screen::Event::kTime:
        break;
    }
    const absl::Status sampled = source.Sample(&model);
    look.trouble =
        sampled.ok() ? "" : "OLD: " + mrd::policy::Printable(std::string(sampled.message()));
    next = TopModel::Clock::now() + command.interval;
  }
}

}  // namespace

int RunTop(const GlobalOptions& options, const TopCommand& command) {
  const bool live = !command.once && !options.json;
  // A person is told at once that what is shown is old, and can press keys.
  Source source(options, live ? mrd::OnLoss::kTell : mrd::OnLoss::kRestore);
  if (command.once) return RunOnce(options, command, source);
  if (options.json) return RunJson(options, command, source);
  return RunLive(options, command, source);
}

}  // namespace mrctl
