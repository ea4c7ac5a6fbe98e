// The daemon's metrics as text: what README's operator's chapter lists.
#ifndef MRD_DAEMON_HOST_METRICS_RENDER_H_
#define MRD_DAEMON_HOST_METRICS_RENDER_H_

#include <chrono>
#include <string>

#include "daemon/broker/broker.h"
#include "daemon/host/metrics/counters.h"
#include "daemon/service/call_stats.h"

namespace mrd::host {

struct MetricSources {
  broker::Broker& broker;
  const Counters& counters;
  const service::CallTable& calls;
  std::chrono::system_clock::time_point started;
};

// In Prometheus' text format, version 0.0.4. Looks at every lease: some milliseconds for a hundred
// thousand of them. Labels have values of closed sets, names of the machine's devices, and at most
// UidLabels::kMost uids: none that a client could choose. From any thread that may take that long.
std::string RenderMetrics(const MetricSources& sources);

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_METRICS_RENDER_H_
