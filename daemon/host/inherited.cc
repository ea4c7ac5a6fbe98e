#include "daemon/host/inherited.h"

#include <stdlib.h>
#include <systemd/sd-daemon.h>

#include <utility>

namespace mrd::host {

std::vector<std::string> NamesOf(const std::vector<InheritedFd>& inherited) {
  std::vector<std::string> names;
  for (const InheritedFd& each : inherited) names.push_back(each.name);
  return names;
}

std::vector<InheritedFd> TakeInherited() {
  char** names = nullptr;
  const int count = sd_listen_fds_with_names(/*unset_environment=*/1, &names);
  std::vector<InheritedFd> inherited;
  for (int i = 0; i < count; ++i) {
    const char* const name = names != nullptr ? names[i] : nullptr;
    inherited.push_back({name != nullptr ? name : "", UniqueFd(SD_LISTEN_FDS_START + i)});
  }
  for (char** name = names; name != nullptr && *name != nullptr; ++name) free(*name);
  free(names);
  return inherited;
}

}  // namespace mrd::host
