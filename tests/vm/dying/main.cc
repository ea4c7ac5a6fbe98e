// mrd with the kernel's verbs, that dies at the step that it is told (control.h):
//
//   MRD_CONTROL=FILE dying_mrd ARGUMENT...        as mrd, which a service manager starts again
//   MRD_CONTROL=FILE MRD_SUPERVISE=DIR dying_mrd ARGUMENT...
//                                                 and is its own service manager, with sockets in
//                                                 DIR
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/ledger/slots.h"
#include "daemon/daemon.h"
#include "daemon/fabric/verbs/api_real.h"
#include "daemon/options.h"
#include "tests/vm/dying/control.h"
#include "tests/vm/dying/dying_api.h"
#include "tests/vm/dying/steps.h"
#include "tests/vm/dying/supervisor.h"

int main(int argc, char** argv) {
  mrd::Options options;
  int exit_code = 0;
  if (!mrd::ParseOptions(argc, argv, &options, &exit_code)) return exit_code;
  const char* const path = getenv("MRD_CONTROL");
  dying::Control* const control = path ? dying::MapControl(path) : nullptr;
  if (!control) {
    fprintf(stderr, "MRD_CONTROL: %s\n", path ? strerror(errno) : "not set");
    return 2;
  }
  const auto daemon = [&options, control] {
    dying::BeginSteps(*control);
    // Before and after each.
    mrd::broker::ledger::Slots::SetHook([] { dying::Step("at", "a ledger store"); });
    const auto verbs = dying::MakeDyingApi(mrd::fabric::verbs::MakeRealApi());
    return mrd::RunDaemon(options, *verbs);
  };
  const char* const dir = getenv("MRD_SUPERVISE");
  return dir ? dying::Supervise(*control, dir, daemon) : daemon();
}
