#include "tests/vm/kills/kernel.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/unique_fd.h"
#include "daemon/fabric/verbs/uverbs.h"
#include "tests/vm/probe/kernel_counts.h"

namespace kills {
namespace {

namespace verbs = mrd::fabric::verbs;
using mrd::internal::UniqueFd;

struct Context {
  std::string device;
  UniqueFd fd;
};

// Empty: its link leads elsewhere. By the last part of its name: in another mount namespace the
// rest is another one.
std::string DeviceOf(const std::filesystem::path& link) {
  std::error_code gone;
  const std::string file = std::filesystem::read_symlink(link, gone).filename();
  if (gone || file.rfind("uverbs", 0) != 0) return "";
  std::ifstream name("/sys/class/infiniband_verbs/" + file + "/ibdev");
  std::string device;
  name >> device;
  return device;
}

bool Same(const UniqueFd& a, const UniqueFd& b) {
  const pid_t own = getpid();
  return syscall(SYS_kcmp, own, own, KCMP_FILE, a.get(), b.get()) == 0;
}

// One of each, however often it is held.
absl::StatusOr<std::vector<Context>> ContextsOf(pid_t daemon) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, daemon, 0)));
  if (!process.valid()) return absl::UnavailableError("the daemon has ended");
  std::vector<Context> contexts;
  std::error_code gone;
  for (const auto& link :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", daemon, "/fd"), gone)) {
    const std::string device = DeviceOf(link.path());
    if (device.empty()) continue;
    const int number = std::stoi(link.path().filename());
    UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), number, 0)));
    if (!fd.valid()) return absl::UnavailableError("a descriptor was closed meanwhile");
    const bool known = std::any_of(contexts.begin(), contexts.end(),
                                   [&fd](const Context& each) { return Same(each.fd, fd); });
    if (!known) contexts.push_back({device, std::move(fd)});
  }
  return contexts;
}

std::optional<uint32_t> DriverOf(const std::string& device) {
  if (device.rfind("rxe", 0) == 0) return RDMA_DRIVER_RXE;
  if (device.rfind("siw", 0) == 0) return RDMA_DRIVER_SIW;
  return std::nullopt;
}

absl::Status LookAt(const Context& context, KernelView* view) {
  const auto driver = DriverOf(context.device);
  if (!driver) return absl::InternalError(context.device + " is neither rxe nor siw");
  const verbs::UverbsContext kernels = {context.fd.get(), *driver};
  KernelView::OfDevice& counts = view->devices[context.device];
  ++counts.contexts;
  const std::pair<verbs::UverbsObject, uint64_t*> kinds[] = {
      {verbs::UverbsObject::kPd, &counts.domains},
      {verbs::UverbsObject::kQp, &counts.queue_pairs},
      {verbs::UverbsObject::kCq, &counts.completion_queues}};
  for (const auto& [kind, count] : kinds) {
    const auto handles = verbs::RealUverbs().Handles(kernels, kind);
    if (!handles.ok()) return absl::ErrnoToStatus(handles.error, "INFO_HANDLES");
    *count += handles.value.handles.size();
  }
  const auto regions = verbs::RealUverbs().Handles(kernels, verbs::UverbsObject::kMr);
  if (!regions.ok()) return absl::ErrnoToStatus(regions.error, "INFO_HANDLES");
  for (const uint32_t handle : regions.value.handles) {
    const auto facts = verbs::RealUverbs().QueryMr(kernels, handle);
    if (facts.error == ENOENT) return absl::UnavailableError("a region ended meanwhile");
    if (!facts.ok()) return absl::ErrnoToStatus(facts.error, "QUERY_MR");
    view->keys.push_back(
        {context.device, facts.value.lkey, facts.value.rkey, facts.value.iova, facts.value.length});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KernelView> LookAtKernel(pid_t daemon) {
  auto contexts = ContextsOf(daemon);
  if (!contexts.ok()) return contexts.status();
  KernelView view;
  for (const Context& context : *contexts) {
    if (absl::Status looked = LookAt(context, &view); !looked.ok()) return looked;
  }
  std::sort(view.keys.begin(), view.keys.end());
  const auto all = probe::KernelRegions();
  if (!all.ok()) return all.status();
  if (*all != view.keys.size()) {
    return absl::UnavailableError(absl::StrCat("the machine has ", *all, " regions, of which ",
                                               view.keys.size(), " lie in the daemon's contexts"));
  }
  return view;
}

}  // namespace kills
