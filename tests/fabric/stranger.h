// A peer that is no mrd and follows no rules: it sends a connection request, and vanishes when it
// is destroyed.
#ifndef MRD_TESTS_FABRIC_STRANGER_H_
#define MRD_TESTS_FABRIC_STRANGER_H_

#include <arpa/inet.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "daemon/fabric/verbs/api.h"
#include "gtest/gtest.h"

namespace mrd::fabric {

class Stranger {
 public:
  // `before_request` runs when all is ready to send.
  Stranger(verbs::Api& api, const std::string& ip, uint32_t port,
           const std::function<void()>& before_request = nullptr)
      : api_(api), channel_(api.CreateEventChannel().value), id_(api.CreateId(channel_).value) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    inet_pton(AF_INET, ip.c_str(), &to.sin_addr);
    EXPECT_EQ(api_.ResolveAddr(id_, nullptr, reinterpret_cast<sockaddr*>(&to), 1000), 0);
    EXPECT_EQ(Wait(), RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(api_.ResolveRoute(id_, 1000), 0);
    EXPECT_EQ(Wait(), RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (before_request) before_request();
    rdma_conn_param param = {};
    param.private_data = "\xff\x00garbage";
    param.private_data_len = 9;
    EXPECT_EQ(api_.Connect(id_, &param), 0);
  }

  ~Stranger() {
    api_.DestroyId(id_);
    api_.DestroyEventChannel(channel_);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // Gives the other side time to see the request.
  void Sent() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

  // ESTABLISHED or REJECTED.
  rdma_cm_event_type WaitOutcome() { return Wait(); }

 private:
  rdma_cm_event_type Wait() {
    for (int i = 0; i < 20000; ++i) {
      const auto event = api_.GetCmEvent(channel_);
      if (event.ok()) {
        const rdma_cm_event_type type = event.value->event;
        api_.AckCmEvent(event.value);
        return type;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no event";
    return RDMA_CM_EVENT_TIMEWAIT_EXIT;
  }

  verbs::Api& api_;
  rdma_event_channel* const channel_;
  rdma_cm_id* const id_;
};

}  // namespace mrd::fabric

#endif  // MRD_TESTS_FABRIC_STRANGER_H_
