// The ledger as another version of the daemon writes it: MRD_TEST_VERSION, for readers from
// MRD_TEST_OLDEST_READER on. Each message of its records has a field that this version does not
// know. Linked in place of daemon/broker/ledger/version.cc.
#include "tests/e2e/other_version.h"

#include <google/protobuf/message.h>

#include <memory>
#include <vector>

#include "daemon/broker/ledger/version.h"

namespace mrd::broker::ledger {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void AddField(Message* message) {
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  google::protobuf::UnknownFieldSet& unknown = *reflection.MutableUnknownFields(message);
  unknown.DeleteByNumber(e2e::kFieldOfOtherVersions);
  unknown.AddVarint(e2e::kFieldOfOtherVersions, MRD_TEST_VERSION);
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (!field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      AddField(reflection.MutableRepeatedMessage(message, field, i));
    }
  }
}

}  // namespace

const Version kThisVersion = {.number = MRD_TEST_VERSION,
                              .oldest_written = MRD_TEST_VERSION - 1,
                              .oldest_reader = MRD_TEST_OLDEST_READER};

std::string BytesOf(const google::protobuf::MessageLite& record) {
  const auto& known = dynamic_cast<const Message&>(record);
  const std::unique_ptr<Message> message(known.New());
  message->CopyFrom(known);
  AddField(message.get());
  return message->SerializeAsString();
}

}  // namespace mrd::broker::ledger
