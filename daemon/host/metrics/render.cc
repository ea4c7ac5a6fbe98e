#include "daemon/host/metrics/render.h"

#include <prometheus/text_serializer.h>

#include <map>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "daemon/broker/holdings.h"
#include "daemon/broker/session_end.h"
#include "daemon/host/metrics/family.h"
#include "daemon/host/metrics/uids.h"
#include "mrd/v1/version.h"

namespace mrd::host {
namespace {

using broker::Amounts;
using enum prometheus::MetricType;

void AddDaemon(const MetricSources& sources, Families& families) {
  Family(families, "mrd_build_info", Gauge, "1; its labels say which daemon this is.")
      .Add({{"version", kVersion}, {"fabric", sources.broker.fabric().name()}}, 1);
  Family(families, "mrd_start_time_seconds", Gauge, "When the daemon started, in Unix time.")
      .Add({}, std::chrono::duration<double>(sources.started.time_since_epoch()).count());
  Family devices(families, "mrd_device_up", Gauge, "1: the device has an active port.");
  for (const broker::DeviceRef& device : sources.broker.devices().Known()) {
    devices.Add(
        {{"device", device->name}, {"transport", v1::Device::Transport_Name(device->transport)}},
        device->active ? 1 : 0);
  }
}

// What each uid is counted to have, against its limits.
void AddUids(const std::map<uint32_t, Amounts>& used, const UidLabels& labels, Families& families) {
  std::map<std::string, Amounts> shown;
  for (const auto& [uid, amounts] : used) shown[labels.Of(uid)] += amounts;
  const struct {
    const char* name;
    uint64_t Amounts::*amount;
    const char* help;
  } gauges[] = {
      {"mrd_sessions", &Amounts::sessions, "Attached sessions."},
      {"mrd_connections", &Amounts::connections, "gRPC connections."},
      {"mrd_buffers", &Amounts::buffers, "Buffers that sessions have passed and not released."},
      {"mrd_endpoints", &Amounts::endpoints, "Endpoints, those being made included."},
      {"mrd_booked_regions", &Amounts::regions,
       "Regions as they count against the limit of the uid: those being made or ended included."},
      {"mrd_booked_bytes", &Amounts::bytes,
       "Pinned bytes as they count against the limit of the uid: those being pinned or freed "
       "included."},
  };
  for (const auto& gauge : gauges) {
    Family family(families, gauge.name, Gauge, gauge.help);
    for (const auto& [uid, amounts] : shown) {
      if (amounts.*gauge.amount > 0) family.Add({{"uid", uid}}, amounts.*gauge.amount);
    }
  }
}

void AddRegions(const std::map<broker::HoldingKey, broker::Holding>& held, const UidLabels& labels,
                const Amounts& stuck, Families& families) {
  std::map<std::tuple<std::string, std::string, std::string>, broker::Holding> shown;
  for (const auto& [key, holding] : held) {
    broker::Holding& sum = shown[{labels.Of(key.uid), key.device, key.domain}];
    sum.regions += holding.regions;
    sum.bytes += holding.bytes;
  }
  const struct {
    const char* name;
    uint64_t broker::Holding::*amount;
    const char* help;
  } gauges[] = {
      {"mrd_regions", &broker::Holding::regions, "Regions under leases."},
      {"mrd_pinned_bytes", &broker::Holding::bytes,
       "Bytes that regions under leases pin, in whole pages, each device counted."},
  };
  for (const auto& gauge : gauges) {
    Family family(families, gauge.name, Gauge, gauge.help);
    for (const auto& [key, holding] : shown) {
      const auto& [uid, device, domain] = key;
      family.Add({{"uid", uid}, {"device", device}, {"domain", domain}}, holding.*gauge.amount);
    }
  }
  Family(families, "mrd_stuck_regions", Gauge,
         "Regions whose end the device refused and whose session has gone: pinned until the daemon "
         "ends. Anything but 0 is worth a look at the log.")
      .Add({}, stuck.regions);
}

void AddCalls(const service::CallTable& calls, Families& families) {
  {
    Family family(families, "mrd_calls_total", Counter, "Calls answered, by method and gRPC code.");
    calls.ForEach([&](const std::string& method, const service::CallStats& stats) {
      for (int code = 0; code < service::kCodes; ++code) {
        const uint64_t count = stats.count(code);
        if (code != 0 && count == 0) continue;
        const auto name = absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
        family.Add({{"method", method}, {"code", name}}, count);
      }
    });
  }
  Family family(families, "mrd_call_duration_seconds", Histogram,
                "From when a call was taken, its request parsed, until its answer was handed to "
                "gRPC. Accept and Connect wait for peers.");
  calls.ForEach([&](const std::string& method, const service::CallStats& stats) {
    family.Add({{"method", method}}, stats.durations());
  });
}

void AddEvents(const Counters& counters, Families& families) {
  Family(families, "mrd_sessions_attached_total", Counter, "Sessions that were attached.")
      .Add({}, counters.sessions_attached.value());
  {
    Family ended(families, "mrd_sessions_ended_total", Counter,
                 "Sessions that have ended and hold nothing any more, by what ended them.");
    for (int i = 0; i < broker::kSessionEnds; ++i) {
      ended.Add({{"cause", broker::NameOf(static_cast<broker::SessionEnd>(i))}},
                counters.sessions_ended[i].value());
    }
  }
  Family(families, "mrd_session_cleanup_seconds", Histogram,
         "From when the end of a session, its process' death say, was noticed until it held "
         "nothing any more.")
      .Add({}, counters.cleanups);
  {
    constexpr const char* kCauses[broker::kLeaseEnds] = {"deregistered", "session_ended", "lapsed",
                                                         "revoked", "device_removed"};
    Family ended(families, "mrd_leases_ended_total", Counter, "Leases that have ended, by cause.");
    for (int i = 0; i < broker::kLeaseEnds; ++i) {
      ended.Add({{"cause", kCauses[i]}}, counters.leases_ended[i].value());
    }
  }
  {
    constexpr const char* kEvents[broker::kDeviceEvents] = {"added", "removed", "port_up",
                                                            "port_down", "fatal"};
    Family events(families, "mrd_device_events_total", Counter, "What happened to devices.");
    for (int i = 0; i < broker::kDeviceEvents; ++i) {
      events.Add({{"event", kEvents[i]}}, counters.device_events[i].value());
    }
  }
  {
    Family refused(families, "mrd_refusals_total", Counter,
                   "Calls, and attempts to attach, that were refused, by reason (error.proto).");
    for (int i = 0; i < v1::Reason_ARRAYSIZE; ++i) {
      if (!v1::Reason_IsValid(i)) continue;
      refused.Add({{"reason", v1::Reason_Name(static_cast<v1::Reason>(i))}},
                  counters.refused[i].value());
    }
  }
  Family(families, "mrd_policy_reads_total", Counter, "Policies read, by whether they were good.")
      .Add({{"result", "refused"}}, counters.policies_read[0].value())
      .Add({{"result", "in_force"}}, counters.policies_read[1].value());
  Family(families, "mrd_log_lines_left_out_total", Counter,
         "Lines about sessions that were not logged, since one session or user caused too many.")
      .Add({}, counters.lines_left_out.value());
}

void AddRegistrar(const MetricSources& sources, Families& families) {
  const broker::Registrar::Load load = sources.broker.registrar().load();
  Family(families, "mrd_registrar_queued", Gauge, "Work that waits for a thread of the registrar.")
      .Add({}, load.queued);
  Family(families, "mrd_registrar_running", Gauge, "Threads of the registrar that work.")
      .Add({}, load.running);
  Family(families, "mrd_registrar_threads", Gauge, "Threads of the registrar.")
      .Add({}, load.threads);
  Family(families, "mrd_registrar_wait_seconds", Histogram,
         "How long work waited for a thread of the registrar. What a thread that takes calls does "
         "itself has not waited and is not here.")
      .Add({}, sources.counters.task_waits);
}

}  // namespace

std::string RenderMetrics(const MetricSources& sources) {
  Families families;
  families.reserve(32);
  const std::map<uint32_t, Amounts> used = sources.broker.books().ByUid();
  const UidLabels labels(used);
  AddDaemon(sources, families);
  AddUids(used, labels, families);
  AddRegions(broker::Holdings(sources.broker), labels, sources.broker.Stuck(), families);
  const broker::Totals totals = sources.broker.Count();
  Family(families, "mrd_mapped_buffers", Gauge, "Buffers that are mapped into the daemon.")
      .Add({}, totals.mappings);
  AddEvents(sources.counters, families);
  AddCalls(sources.calls, families);
  AddRegistrar(sources, families);
  std::ostringstream text;
  text.imbue(std::locale::classic());
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

}  // namespace mrd::host
