// mrd.v1.Devices.
#include "daemon/service/convert.h"
#include "daemon/service/service.h"
#include "mrd/v1/device.grpc.pb.h"

namespace mrd::service {
namespace {

class DevicesService : public Service {
 public:
  using Service::Service;

  grpc::Service* generated() override { return &generated_; }

  void Start(grpc::ServerCompletionQueue* queue) override {
    Take(queue, generated_, &v1::Devices::AsyncService::RequestListDevices, Admission::kSession,
         [this](auto* call) { ListDevices(call); });
  }

 private:
  void ListDevices(Call<v1::ListDevicesRequest, v1::ListDevicesResponse>* call) {
    auto work = broker::Work::Begin(broker(), call->session());
    if (!work.ok()) return call->Finish(work.status());
    broker().devices().List(
        [this, call, work = *std::move(work)](const std::vector<broker::DeviceRef>& devices) {
          const bool admin = call->session()->identity.admin;
          auto regions = admin ? broker().RegionsByDevice() : std::map<std::string, uint64_t>();
          for (const broker::DeviceRef& info : devices) {
            v1::Device* device = call->response().add_devices();
            ToProto(*info, device);
            if (admin) device->set_regions(regions[info->name]);
          }
          call->Finish(absl::OkStatus());
        });
  }

  v1::Devices::AsyncService generated_;
};

}  // namespace

std::unique_ptr<Service> MakeDevicesService(CallEnvironment& environment) {
  return std::make_unique<DevicesService>(environment);
}

}  // namespace mrd::service
