#include "daemon/host/metrics/family.h"

#include <limits>
#include <utility>

namespace mrd::host {

using prometheus::MetricType;

Family::Family(Families& families, std::string name, MetricType type, std::string help)
    : family_(families.emplace_back()) {
  family_.name = std::move(name);
  family_.help = std::move(help);
  family_.type = type;
}

Family& Family::Add(Labels labels, double value) {
  prometheus::ClientMetric& series = family_.metric.emplace_back();
  series.label = std::move(labels);
  (family_.type == MetricType::Counter ? series.counter.value : series.gauge.value) = value;
  return *this;
}

Family& Family::Add(Labels labels, const stats::Durations& durations) {
  const stats::Durations::Snapshot snapshot = durations.Read();
  prometheus::ClientMetric& series = family_.metric.emplace_back();
  series.label = std::move(labels);
  auto& histogram = series.histogram;
  histogram.sample_sum = static_cast<double>(snapshot.total_ns) / 1e9;
  for (size_t i = 0; i < snapshot.counts.size(); ++i) {
    histogram.sample_count += snapshot.counts[i];
    const bool beyond = i == stats::Durations::kBoundsNs.size();
    const double bound = beyond ? std::numeric_limits<double>::infinity()
                                : static_cast<double>(stats::Durations::kBoundsNs[i]) / 1e9;
    histogram.bucket.push_back({histogram.sample_count, bound});
  }
  return *this;
}

}  // namespace mrd::host
