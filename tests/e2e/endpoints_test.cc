// Passive endpoints over the API, on fabric soft and on faked verbs; real peers are the machine
// tests' matter (tests/vm).
#include <grpcpp/grpcpp.h>

#include <future>

#include "mrd/v1/endpoint.grpc.pb.h"
#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

class EndpointsTest : public EachFabricTest {
 protected:
  // Of the fabric's only device; soft's own address where it has no name for it.
  std::string at() const { return address().empty() ? "127.0.0.1" : address(); }

  struct Pair {
    v1::Endpoint listener, accepted, connected;
  };
  Pair Establish(RawClient& server, RawClient& client) {
    Pair pair;
    const auto listening = server.Listen(address());
    Require(listening.ok(), "listen: " + listening.text());
    pair.listener = listening.response.endpoint();
    auto accepting = std::async(std::launch::async, [&] {
      return server.Accept(pair.listener.endpoint_id(), kPatience, "from the server");
    });
    v1::ConnectRequest request;
    request.set_address(at());
    request.set_port(pair.listener.local_port());
    request.set_private_data("from the client");
    const auto connected = client.Connect(request);
    const auto accepted = accepting.get();
    Require(connected.ok() && accepted.ok(), connected.text() + accepted.text());
    pair.accepted = accepted.response.endpoint();
    pair.connected = connected.response.endpoint();
    EXPECT_EQ(accepted.response.private_data().substr(0, 15), "from the client");
    EXPECT_EQ(connected.response.private_data().substr(0, 15), "from the server");
    return pair;
  }
  static v1::Endpoint::State StateOf(RawClient& client, uint64_t id) {
    const auto listed = client.ListEndpoints().response;
    for (const auto& endpoint : listed.endpoints()) {
      if (endpoint.endpoint_id() == id) return endpoint.state();
    }
    return v1::Endpoint::STATE_UNSPECIFIED;
  }
};
MRD_ON_EACH_FABRIC(EndpointsTest);

TEST_P(EndpointsTest, TwoSessionsConnectAndTellEachOther) {
  StartThis();
  RawClient server(dir());
  RawClient client(dir());
  const Pair pair = Establish(server, client);
  EXPECT_EQ(pair.listener.state(), v1::Endpoint::LISTENING);
  EXPECT_NE(pair.listener.local_port(), 0u);
  EXPECT_EQ(pair.accepted.state(), v1::Endpoint::CONNECTED);
  EXPECT_EQ(pair.connected.state(), v1::Endpoint::CONNECTED);
  EXPECT_EQ(pair.connected.peer_port(), pair.listener.local_port());
  EXPECT_EQ(pair.accepted.device(), device());
  EXPECT_NE(pair.accepted.qp_num(), pair.connected.qp_num());
  EXPECT_EQ(server.ListEndpoints().response.endpoints_size(), 2);
  EXPECT_EQ(Look().endpoints, 3u);
}

TEST_P(EndpointsTest, WhenAPeerLeavesTheOtherIsToldAndItsEndpointStaysListed) {
  StartThis();
  RawClient server(dir());
  RawClient client(dir());
  const Pair pair = Establish(server, client);
  ASSERT_TRUE(client.Disconnect(pair.connected.endpoint_id()).ok());
  const auto packet = server.attach().Receive();
  ASSERT_TRUE(packet && packet->has_event());
  EXPECT_EQ(packet->event().kind(), v1::AttachEvent::ENDPOINT_ENDED);
  EXPECT_EQ(packet->event().cause(), v1::AttachEvent::PEER_DISCONNECTED);
  EXPECT_EQ(packet->event().sequence(), 1u);
  ASSERT_EQ(packet->event().endpoint_ids_size(), 1);
  EXPECT_EQ(packet->event().endpoint_ids(0), pair.accepted.endpoint_id());
  EXPECT_EQ(StateOf(server, pair.accepted.endpoint_id()), v1::Endpoint::DISCONNECTED);
  EXPECT_TRUE(server.Disconnect(pair.accepted.endpoint_id()).ok());
  EXPECT_EQ(StateOf(server, pair.accepted.endpoint_id()), v1::Endpoint::STATE_UNSPECIFIED);
}

TEST_P(EndpointsTest, ADyingPeersEndpointsEndTooAndTheOtherIsTold) {
  StartThis();
  RawClient server(dir());
  RawClient client(dir());
  const Pair pair = Establish(server, client);
  client.HangUp();
  const auto packet = server.attach().Receive(Promised(seconds(1)));
  ASSERT_TRUE(packet && packet->has_event());
  EXPECT_EQ(packet->event().endpoint_ids(0), pair.accepted.endpoint_id());
}

TEST_P(EndpointsTest, EndpointUnknown) {
  StartThis();
  RawClient client(dir());
  RawClient stranger(dir());
  const auto foreign = stranger.Listen(address());
  ASSERT_TRUE(foreign.ok());
  const Holdings before = Look();
  for (const uint64_t id :
       {uint64_t{0}, uint64_t{1}, UINT64_MAX, foreign.response.endpoint().endpoint_id()}) {
    ExpectRefusal(client.Disconnect(id), v1::ENDPOINT_UNKNOWN);
    ExpectRefusal(client.Accept(id, milliseconds(10)), v1::ENDPOINT_UNKNOWN);
  }
  EXPECT_EQ(Look(), before);
  const uint64_t id = client.Listen(address()).response.endpoint().endpoint_id();
  ASSERT_TRUE(client.Disconnect(id).ok());
  ExpectRefusal(client.Disconnect(id), v1::ENDPOINT_UNKNOWN);
}

TEST_P(EndpointsTest, AListenersEndEndsItsWaitingAcceptsAndLeavesWhatItAccepted) {
  StartThis();
  RawClient server(dir());
  RawClient client(dir());
  const Pair pair = Establish(server, client);
  const uint64_t id = pair.listener.endpoint_id();
  auto accepting = std::async(std::launch::async, [&] { return server.Accept(id, kPatience); });
  ASSERT_TRUE(WaitUntil(kPatience, [&] { return Look().endpoints == 4; }));  // Booked: it waits.
  ASSERT_TRUE(server.Disconnect(id).ok());
  ExpectRefusal(accepting.get(), v1::ENDPOINT_UNKNOWN);
  EXPECT_EQ(StateOf(server, pair.accepted.endpoint_id()), v1::Endpoint::CONNECTED);
}

TEST_P(EndpointsTest, EndpointState) {
  StartThis();
  RawClient server(dir());
  RawClient client(dir());
  const Pair pair = Establish(server, client);
  const Holdings before = Look();
  ExpectRefusal(server.Accept(pair.accepted.endpoint_id(), milliseconds(10)), v1::ENDPOINT_STATE);
  EXPECT_EQ(Look(), before);
}

TEST_P(EndpointsTest, WaitEnded) {
  StartThis();
  RawClient server(dir());
  RawClient client(dir());
  const auto listening = server.Listen(address());
  ASSERT_TRUE(listening.ok());
  const Holdings before = Look();
  const auto began = Clock::now();
  ExpectRefusal(server.Accept(listening.response.endpoint().endpoint_id(), milliseconds(200)),
                v1::WAIT_ENDED);
  EXPECT_GE(Clock::now() - began, milliseconds(200));
  // Nobody accepts.
  const auto connecting =
      client.Connect(at(), listening.response.endpoint().local_port(), milliseconds(200));
  ExpectRefusal(connecting, v1::WAIT_ENDED);
  ExpectHoldings(before);
}

TEST_P(EndpointsTest, ConnectionFailed) {
  StartThis();
  RawClient client(dir());
  const Holdings before = Look();
  const auto refused = client.Connect(at(), 9);
  ExpectRefusal(refused, v1::CONNECTION_FAILED);
  EXPECT_EQ(refused.detail.errno_name(), "ECONNREFUSED");
  ExpectHoldings(before);
  const auto taken = client.Listen(address());
  ASSERT_TRUE(taken.ok());
  const auto again = client.Listen(address(), taken.response.endpoint().local_port());
  ExpectRefusal(again, v1::CONNECTION_FAILED);
  EXPECT_EQ(again.detail.errno_name(), "EADDRINUSE");
}

TEST_P(EndpointsTest, AddressInvalid) {
  StartThis();
  RawClient client(dir());
  const Holdings before = Look();
  for (const std::string address :
       {"elsewhere", "1.2.3.4.5", "203.0.113.9", "::zz", "127.0.0.1:80"}) {
    SCOPED_TRACE(address);
    ExpectRefusal(client.Listen(address), v1::ADDRESS_INVALID);
  }
  for (const std::string address : {"elsewhere", "1.2.3.4.5", "::zz"}) {
    SCOPED_TRACE(address);
    ExpectRefusal(client.Connect(address, 80), v1::ADDRESS_INVALID);
  }
  ExpectRefusal(client.Listen(address(), 65536), v1::ADDRESS_INVALID);
  ExpectRefusal(client.Connect(at(), 0), v1::ADDRESS_INVALID);
  ExpectHoldings(before);
}

TEST_P(EndpointsTest, PrivateDataHasItsBounds) {
  StartThis();
  RawClient client(dir());
  const uint64_t id = client.Listen(address()).response.endpoint().endpoint_id();
  const Holdings before = Look();
  const auto accept = client.Accept(id, milliseconds(10), std::string(197, 'x'));
  ExpectRefusal(accept, v1::REQUEST_INVALID);
  ExpectLimit(accept, "private_data", 196, 0);
  v1::ConnectRequest request;
  request.set_address(at());
  request.set_port(9);
  request.set_private_data(std::string(57, 'x'));
  const auto connect = client.Connect(request);
  ExpectRefusal(connect, v1::REQUEST_INVALID);
  ExpectLimit(connect, "private_data", 56, 0);
  EXPECT_EQ(Look(), before);
}

TEST_P(EndpointsTest, AWaitThatIsNoDurationIsRequestInvalid) {
  StartThis();
  RawClient client(dir());
  const uint64_t id = client.Listen(address()).response.endpoint().endpoint_id();
  const Holdings before = Look();
  ExpectRefusal(client.Accept(id, milliseconds(-1)), v1::REQUEST_INVALID);
  EXPECT_EQ(Look(), before);
}

TEST_P(EndpointsTest, AnAcceptWhoseClientGoesAwayTakesNoConnection) {
  StartThis();
  RawClient server(dir());
  RawClient client(dir());
  const auto listener = server.Listen(address()).response.endpoint();
  const Holdings before = Look();
  {
    grpc::ClientContext context;
    server.Prepare(&context, milliseconds(300));
    v1::AcceptRequest request;
    request.set_endpoint_id(listener.endpoint_id());
    v1::AcceptResponse response;
    const auto stub = v1::Endpoints::NewStub(MakeChannel(dir()));
    EXPECT_EQ(stub->Accept(&context, request, &response).error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  ExpectHoldings(before);
  // A later one gets the connection.
  auto accepting = std::async(std::launch::async,
                              [&] { return server.Accept(listener.endpoint_id(), kPatience); });
  EXPECT_TRUE(client.Connect(at(), listener.local_port()).ok());
  EXPECT_TRUE(accepting.get().ok());
}

class EndpointErrorsTest : public DaemonTest {
 protected:
  EndpointErrorsTest() { Start({.fabric = "verbs"}); }
};

TEST_F(EndpointErrorsTest, EachFailingStepLeavesNothing) {
  RawClient server(dir());
  RawClient client(dir());
  const auto listener = server.Listen("10.99.0.1").response.endpoint();
  const Holdings before = Look();
  const struct {
    const char* call;
    const char* error;
  } steps[] = {{"id", "ENOMEM"}, {"resolve_addr", "ENODEV"}, {"resolve_route", "EINVAL"},
               {"cq", "ENOMEM"}, {"qp", "ENOMEM"},           {"connect", "EINVAL"}};
  for (const auto& step : steps) {
    SCOPED_TRACE(step.call);
    daemon().Control(std::string("fail fake0 ") + step.call + " " + step.error + "@1");
    const auto answer = client.Connect("10.99.0.1", listener.local_port(), seconds(2));
    EXPECT_FALSE(answer.ok());
    EXPECT_NE(answer.reason(), v1::REASON_UNSPECIFIED) << answer.text();
    EXPECT_EQ(answer.detail.errno_name(), step.error) << answer.text();
    // Requests that reached the listener wait there for an Accept.
    ExpectHoldings(before);
  }
  for (const char* call : {"bind", "listen", "channel"}) {
    SCOPED_TRACE(call);
    daemon().Control(std::string("fail fake0 ") + call + " EACCES@1");
    EXPECT_FALSE(server.Listen("10.99.0.1").ok());
    ExpectHoldings(before);
  }
}

TEST_F(EndpointErrorsTest, AFailedQueuePairIsToldAsAnError) {
  RawClient server(dir());
  RawClient client(dir());
  const auto listener = server.Listen("10.99.0.1").response.endpoint();
  auto accepting = std::async(std::launch::async,
                              [&] { return server.Accept(listener.endpoint_id(), kPatience); });
  ASSERT_TRUE(client.Connect("10.99.0.1", listener.local_port()).ok());
  ASSERT_TRUE(accepting.get().ok());
  daemon().Control("fail_qps");
  for (RawClient* each : {&server, &client}) {
    const auto packet = each->attach().Receive();
    ASSERT_TRUE(packet && packet->has_event());
    EXPECT_EQ(packet->event().kind(), v1::AttachEvent::ENDPOINT_ENDED);
  }
}

}  // namespace
}  // namespace mrd::e2e
