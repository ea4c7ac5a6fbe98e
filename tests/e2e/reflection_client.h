// What a server says of itself by gRPC's reflection: its services, with their methods and messages.
// Nothing of this process's own generated code is asked.
#ifndef MRD_TESTS_E2E_REFLECTION_CLIENT_H_
#define MRD_TESTS_E2E_REFLECTION_CLIENT_H_

#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

namespace mrd::e2e {

// The answer to a call with these bytes; deadline within `deadline`.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
                     const std::string& method, const std::string& request, std::string* response);

// The names of all services. REQUIRES: the server has reflection.
std::vector<std::string> ListServices(const std::shared_ptr<grpc::Channel>& channel);

// Adds the file that defines this symbol, and those that it imports, to `pool`.
void AddFilesOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& symbol,
                google::protobuf::DescriptorPool* pool);

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_REFLECTION_CLIENT_H_
