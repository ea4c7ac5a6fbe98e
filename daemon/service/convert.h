// Between the broker's types and the API's messages.
#ifndef MRD_DAEMON_SERVICE_CONVERT_H_
#define MRD_DAEMON_SERVICE_CONVERT_H_

#include <chrono>
#include <cstddef>

#include "absl/status/statusor.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/endpoints.h"
#include "daemon/broker/generations.h"
#include "daemon/broker/ledger/ledger.h"
#include "daemon/broker/outlook.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "mrd/v1/device.pb.h"
#include "mrd/v1/domain.pb.h"
#include "mrd/v1/endpoint.pb.h"
#include "mrd/v1/registration.pb.h"
#include "mrd/v1/session.pb.h"
#include "mrd/v1/survival.pb.h"

namespace mrd::service {

// Errors: ACCESS_INVALID.
absl::StatusOr<fabric::AccessMask> FromProto(const v1::Access& access);
// Errors: REQUEST_INVALID, ACCESS_INVALID, UNSUPPORTED.
absl::StatusOr<broker::RegisterSpec> FromProto(const v1::RegisterRequest& request);
// A time to come of at most `most`, which an absent one means too; `field` is its name. Errors:
// REQUEST_INVALID.
absl::StatusOr<std::chrono::nanoseconds> WaitFrom(bool present, const char* field,
                                                  const google::protobuf::Duration& wait,
                                                  std::chrono::nanoseconds most);
// 0 means the most, 1,000.
size_t PageSize(uint32_t asked);

// What an admin says why, for people. Errors: REQUEST_INVALID: too long, or not printable.
absl::Status CheckReason(const std::string& reason);

void ToProto(std::chrono::nanoseconds duration, google::protobuf::Duration* message);
void ToProto(const broker::LeaseView& view, v1::Lease* lease);
void ToProto(const broker::DomainView& view, v1::Domain* domain);
void ToProto(const fabric::DeviceInfo& info, v1::Device* device);
void ToProto(const broker::SessionView& view, v1::Session* session);
void ToProto(const broker::GenerationView& view, v1::Generation* generation);
void ToProto(const broker::Outlook& outlook, v1::Survival* survival);
// `awaited`: sessions that have not come back.
void ToProto(broker::ledger::Ledger& ledger, size_t awaited, v1::Store* store);
void ToProto(const broker::EndpointView& view, v1::Endpoint* endpoint);
// REQUIRES: it is drained.
void ToProto(const broker::DrainView& view, v1::Drain* drain);
void ToProto(std::chrono::system_clock::time_point time, google::protobuf::Timestamp* timestamp);

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_CONVERT_H_
