// The methods of mrd.v1.Admin that change something. Each answers its call, now or later.
#ifndef MRD_DAEMON_SERVICE_ADMIN_ACTIONS_H_
#define MRD_DAEMON_SERVICE_ADMIN_ACTIONS_H_

#include <functional>

#include "daemon/broker/broker.h"
#include "daemon/service/call.h"
#include "mrd/v1/admin.grpc.pb.h"

namespace mrd::service {

void RevokeLeases(broker::Broker& broker,
                  Call<v1::RevokeLeasesRequest, v1::RevokeLeasesResponse>* call);
void RevokeSession(broker::Broker& broker,
                   Call<v1::RevokeSessionRequest, v1::RevokeSessionResponse>* call);
void DrainDaemon(broker::Broker& broker,
                 Call<v1::DrainDaemonRequest, v1::DrainDaemonResponse>* call);
void UndrainDaemon(broker::Broker& broker,
                   Call<v1::UndrainDaemonRequest, v1::UndrainDaemonResponse>* call);
// `reload`: see ServerOptions.
void ReloadPolicy(broker::Broker& broker, const std::function<absl::Status()>& reload,
                  Call<v1::ReloadPolicyRequest, v1::ReloadPolicyResponse>* call);

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_ADMIN_ACTIONS_H_
