// mrctl version: of this program; the daemon's is in `mrctl status`.
#include "mrd/v1/version.h"

#include <string>

#include "client/mrctl/command.h"

namespace mrctl {

int RunVersion(const GlobalOptions& options) {
  const std::string version = mrd::kVersion;
  const std::string protocol = std::to_string(mrd::kProtocolVersion);
  return Print(options, options.json
                            ? "{\n \"version\": \"" + version +
                                  "\",\n \"protocol_version\": " + protocol + "\n}\n"
                            : "mrctl " + version + " (attach protocol " + protocol + ")\n");
}

}  // namespace mrctl
