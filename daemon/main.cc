#include "daemon/daemon.h"
#include "daemon/fabric/verbs/api_real.h"
#include "daemon/options.h"

int main(int argc, char** argv) {
  mrd::Options options;
  int exit_code = 0;
  if (!mrd::ParseOptions(argc, argv, &options, &exit_code)) return exit_code;
  const auto verbs = mrd::fabric::verbs::MakeRealApi();
  return mrd::RunDaemon(options, *verbs);
}
