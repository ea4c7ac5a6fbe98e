#include "tests/e2e/reflection_client.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/empty.pb.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/generic/generic_stub.h>

#include <map>

#include "tests/e2e/common.h"

namespace mrd::e2e {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

std::string Text(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!bytes.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

// The submessages or strings of this number.
std::vector<std::string> Field(const std::string& message, int number) {
  google::protobuf::Empty parsed;
  Require(parsed.ParseFromString(message), "an answer that can be parsed");
  std::vector<std::string> values;
  const UnknownFieldSet& fields = parsed.GetReflection()->GetUnknownFields(parsed);
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    if (field.number() == number && field.type() == UnknownField::TYPE_LENGTH_DELIMITED) {
      values.push_back(field.length_delimited());
    }
  }
  return values;
}

// grpc.reflection.v1alpha: ServerReflectionRequest with one string field.
std::string Ask(const std::shared_ptr<grpc::Channel>& channel, int field,
                const std::string& value) {
  UnknownFieldSet request;
  request.AddLengthDelimited(field, value);
  std::string bytes;
  request.SerializeToString(&bytes);

  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  grpc::CompletionQueue queue;
  const auto next = [&] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  call->StartCall(nullptr);
  grpc::ByteBuffer answer;
  Require(next(), "reflection starts");
  call->Write(Bytes(bytes), nullptr);
  Require(next(), "reflection is asked");
  call->Read(&answer, nullptr);
  Require(next(), "reflection answers");
  call->WritesDone(nullptr);
  next();
  grpc::Status status;
  call->Finish(&status, nullptr);
  Require(next() && status.ok(), "reflection: " + status.error_message());
  return Text(answer);
}

}  // namespace

grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
                     const std::string& method, const std::string& request, std::string* response) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  auto call = stub.PrepareUnaryCall(context, method, Bytes(request), &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  Require(queue.Next(&tag, &ok), "an answer");
  *response = Text(answer);
  return status;
}

std::vector<std::string> ListServices(const std::shared_ptr<grpc::Channel>& channel) {
  constexpr int kListServices = 7;
  constexpr int kListServicesResponse = 6;
  std::vector<std::string> names;
  for (const std::string& list : Field(Ask(channel, kListServices, "*"), kListServicesResponse)) {
    for (const std::string& service : Field(list, 1)) names.push_back(Field(service, 1).at(0));
  }
  return names;
}

void AddFilesOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& symbol,
                google::protobuf::DescriptorPool* pool) {
  constexpr int kFileContainingSymbol = 4;
  constexpr int kFileDescriptorResponse = 4;
  std::map<std::string, google::protobuf::FileDescriptorProto> files;
  for (const std::string& answer :
       Field(Ask(channel, kFileContainingSymbol, symbol), kFileDescriptorResponse)) {
    for (const std::string& bytes : Field(answer, 1)) {
      google::protobuf::FileDescriptorProto file;
      Require(file.ParseFromString(bytes), "a file descriptor");
      files[file.name()] = file;
    }
  }
  // Those that are imported first.
  const auto add = [&](const auto& self, const std::string& name) -> void {
    if (pool->FindFileByName(name) != nullptr) return;
    Require(files.contains(name), name + " among the files");
    for (const std::string& import : files[name].dependency()) self(self, import);
    Require(pool->BuildFile(files[name]) != nullptr, name + " can be built");
  };
  for (const auto& [name, file] : files) add(add, name);
}

}  // namespace mrd::e2e
