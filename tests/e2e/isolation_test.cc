// Another user's session sees and changes nothing of this one: every method of every service that
// the daemon serves is tried, found by reflection, so that a new one is covered on its first day.
#include <google/protobuf/dynamic_message.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>

#include "google/protobuf/util/json_util.h"
#include "tests/e2e/daemon_test.h"
#include "tests/e2e/reflection_client.h"

namespace mrd::e2e {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

constexpr uid_t kIntruder = 65533;
constexpr char kName[] = "the-victim-of-it";
constexpr char kDomain[] = "domain-of-the-victim";

// Attaches as another user: the kernel tells the daemon who connects, by thread.
std::unique_ptr<RawClient> AttachAs(uid_t uid, const std::string& dir) {
  // The socket is the group's: opened here as an operator would.
  Require(chmod((dir + "/attach.sock").c_str(), 0666) == 0, "a socket for others");
  std::unique_ptr<RawClient> client;
  std::thread([&] {
    Require(syscall(SYS_setresgid, -1, uid, -1) == 0 && syscall(SYS_setresuid, -1, uid, -1) == 0,
            "another user");
    client = std::make_unique<RawClient>(dir);
  }).join();
  return client;
}

class IsolationTest : public EachFabricTest {
 protected:
  void StartVictim() {
    StartThis();
    victim_ = std::make_unique<RawClient>(dir(), RawClient::Options{.name = kName});
    std::string answer;
    Call("/mrd.v1.Domains/OpenDomain", victim_->token(),
         std::string("\x0a\x14") + kDomain + "\x10\x01", &answer);
    buffer_ = victim_->Pass(memory_);
    auto request = RequestFor(buffer_, memory_);
    request.mutable_ttl()->set_seconds(3600);
    request.set_domain(kDomain);
    const auto lease = victim_->Register(request);
    Require(lease.ok(), lease.text());
    lease_ = lease.response.leases(0);
    const auto listener = victim_->Listen(address());
    Require(listener.ok(), listener.text());
    endpoint_ = listener.response.endpoint();
  }
  void TearDown() override {
    victim_ = nullptr;
    EachFabricTest::TearDown();
  }

  grpc::Status Call(const std::string& method, const std::string& token, const std::string& request,
                    std::string* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(2));
    context.set_wait_for_ready(true);
    context.AddMetadata("mrd-session-bin", token);
    return CallRaw(MakeChannel(dir()), &context, method, request, response);
  }

  // The victim's own view of what it has.
  std::string Holdings() {
    const auto leases = victim_->ListLeases();
    const auto endpoints = victim_->ListEndpoints();
    const auto status = victim_->GetStatus();
    Require(leases.ok() && endpoints.ok() && status.ok(), "the victim is served");
    v1::ListLeasesResponse held = leases.response;
    for (auto& lease : *held.mutable_leases()) lease.clear_remaining();
    v1::Session session = status.response.session();
    session.clear_calls();  // This one is counted too.
    return held.ShortDebugString() + endpoints.response.ShortDebugString() +
           session.ShortDebugString();
  }

  // Every field that names something names the victim's.
  void Fill(Message* message, int depth = 0) {
    const auto* reflection = message->GetReflection();
    const Descriptor* descriptor = message->GetDescriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      const std::string& name = field->name();
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        if (depth > 2 || name == "ttl" || name == "wait") continue;
        Fill(field->is_repeated() ? reflection->AddMessage(message, field)
                                  : reflection->MutableMessage(message, field),
             depth + 1);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
        const uint64_t value = ValueOf(name);
        if (field->is_repeated()) {
          reflection->AddUInt64(message, field, value);
        } else {
          reflection->SetUInt64(message, field, value);
        }
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && !field->is_repeated()) {
        if (name == "domain" || (name == "name" && depth == 0)) {
          reflection->SetString(message, field, kDomain);
        }
      }
    }
  }
  uint64_t ValueOf(const std::string& field) const {
    if (field.starts_with("lease_id")) return lease_.lease_id();
    if (field == "after_lease_id") return lease_.lease_id() - 1;
    if (field.starts_with("buffer_id")) return buffer_;
    if (field == "endpoint_id") return endpoint_.endpoint_id();
    if (field == "session_id") return victim_->session_id();
    if (field == "length") return lease_.length();
    if (field == "addr") return lease_.addr();
    return 0;
  }

  // What only the victim and admins may know.
  std::vector<std::string> Secrets() const {
    return {kName, kDomain, std::to_string(lease_.lease_id()),
            std::to_string(endpoint_.endpoint_id()),
            "\"rkey\":" + std::to_string(lease_.keys(0).rkey())};
  }

  const Memory memory_{kPage};
  std::unique_ptr<RawClient> victim_;
  uint64_t buffer_ = 0;
  v1::Lease lease_;
  v1::Endpoint endpoint_;
};
MRD_ON_EACH_FABRIC(IsolationTest);

TEST_P(IsolationTest, NoMethodOfAnyServiceShowsOrChangesWhatAnotherUserHas) {
  StartVictim();
  const auto intruder = AttachAs(kIntruder, dir());
  ASSERT_EQ(intruder->GetStatus().response.session().uid(), kIntruder);
  const std::string before = Holdings();
  const auto channel = MakeChannel(dir());
  google::protobuf::DescriptorPool pool;
  google::protobuf::DynamicMessageFactory factory(&pool);
  int methods = 0;
  int admin_methods = 0;
  for (const std::string& service : ListServices(channel)) {
    if (!service.starts_with("mrd.")) continue;
    AddFilesOf(channel, service, &pool);
    const auto* described = pool.FindServiceByName(service);
    ASSERT_NE(described, nullptr) << service;
    for (int i = 0; i < described->method_count(); ++i) {
      const MethodDescriptor* method = described->method(i);
      const std::string path = "/" + service + "/" + method->name();
      for (const bool filled : {false, true}) {
        SCOPED_TRACE(path + (filled ? " with the victim's ids" : ""));
        const std::unique_ptr<Message> request(factory.GetPrototype(method->input_type())->New());
        const std::unique_ptr<Message> response(factory.GetPrototype(method->output_type())->New());
        if (filled) Fill(request.get());
        std::string bytes;
        const grpc::Status status =
            Call(path, intruder->token(), request->SerializeAsString(), &bytes);
        if (service == "mrd.v1.Admin") {
          EXPECT_EQ(DetailOf(status).reason(), v1::POLICY_DENIED) << status.error_message();
          ++admin_methods;
        }
        ASSERT_TRUE(response->ParseFromString(bytes));
        std::string told;
        ASSERT_TRUE(google::protobuf::util::MessageToJsonString(*response, &told).ok());
        for (const std::string& secret : Secrets()) {
          EXPECT_EQ(told.find(secret), std::string::npos) << secret << " in " << told;
          if (!filled) {
            EXPECT_EQ(status.error_message().find(secret), std::string::npos);
          }
        }
        EXPECT_EQ(Holdings(), before);
      }
      ++methods;
    }
  }
  EXPECT_GE(methods, 18) << "fewer than there were";
  EXPECT_GE(admin_methods, 4);
}

TEST_P(IsolationTest, TheWalkFindsWhatItLooksForWhereTheVictimItselfAsks) {
  StartVictim();
  std::string bytes;
  ASSERT_TRUE(Call("/mrd.v1.Registration/ListLeases", victim_->token(), "", &bytes).ok());
  EXPECT_NE(bytes.find(kDomain), std::string::npos);
  ASSERT_TRUE(Call("/mrd.v1.Sessions/GetStatus", victim_->token(), "", &bytes).ok());
  EXPECT_NE(bytes.find(kName), std::string::npos);
}

}  // namespace
}  // namespace mrd::e2e
