// mrctl metrics: the daemon's metrics, for people who look and for scripts that scrape.
#include <string>

#include "client/mrctl/command.h"

namespace mrctl {

int RunMetrics(const GlobalOptions& options) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto text = client->GetMetrics();
  if (!text.ok()) return Fail(options, text.status());
  if (!options.json) return Print(options, *text);
  mrd::v1::GetMetricsResponse response;
  response.set_text(*std::move(text));
  return PrintJson(options, response);
}

}  // namespace mrctl
