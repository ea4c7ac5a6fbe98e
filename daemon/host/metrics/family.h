// Metric families, as prometheus-cpp has them, in few words. Counting is done elsewhere (stats.h):
// a family is made anew each time that somebody asks, and written by prometheus-cpp's serializer.
#ifndef MRD_DAEMON_HOST_METRICS_FAMILY_H_
#define MRD_DAEMON_HOST_METRICS_FAMILY_H_

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "daemon/stats.h"

namespace mrd::host {

using Labels = std::vector<prometheus::ClientMetric::Label>;
using Families = std::vector<prometheus::MetricFamily>;

// One family: Family(families, ...) begins it, Add adds a series.
class Family {
 public:
  // `families` outlives it, and has no other family added meanwhile.
  Family(Families& families, std::string name, prometheus::MetricType type, std::string help);

  // Of a counter or a gauge.
  Family& Add(Labels labels, double value);
  // Of a histogram, in seconds.
  Family& Add(Labels labels, const stats::Durations& durations);

 private:
  prometheus::MetricFamily& family_;
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_METRICS_FAMILY_H_
