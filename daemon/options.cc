#include "daemon/options.h"

#include <grp.h>

#include <map>

#include "CLI/CLI.hpp"
#include "mrd/v1/version.h"

namespace mrd {
namespace {

// "0660" to the mode. CLI::Error text on failure.
std::string CheckMode(const std::string& text) {
  char* end = nullptr;
  const unsigned long mode = strtoul(text.c_str(), &end, 8);
  if (text.empty() || *end != '\0' || mode > 0777) return "must be an octal mode such as 0660";
  return "";
}

std::string CheckGroup(const std::string& name) {
  return getgrnam(name.c_str()) ? ""
                                : "no group of the name " + name + " (getent group lists them)";
}

}  // namespace

bool ParseOptions(int argc, char** argv, Options* options, int* exit_code) {
  CLI::App app{
      "mrd, the memory-region daemon: registers clients' shared memory with RDMA devices\n"
      "and owns their endpoints, over Unix sockets.",
      "mrd"};
  app.set_version_flag("--version", std::string("mrd ") + kVersion);
  std::string mode = "0660";
  std::string group;
  const std::map<std::string, spdlog::level::level_enum> levels = {{"debug", spdlog::level::debug},
                                                                   {"info", spdlog::level::info},
                                                                   {"warning", spdlog::level::warn},
                                                                   {"error", spdlog::level::err}};
  app.add_option("--socket-dir", options->sockets.dir,
                 "Directory of mrd.sock and attach.sock; the admin socket is in DIR-admin")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--socket-mode", mode, "Mode of the sockets that clients connect to")
      ->type_name("OCTAL")
      ->capture_default_str()
      ->check(CLI::Validator(CheckMode, ""));
  app.add_option("--socket-group", group,
                 "Group of the sockets that clients connect to; default: mrd's own")
      ->type_name("NAME")
      ->check(CLI::Validator(CheckGroup, ""));
  app.add_option("--fabric", options->fabric,
                 "verbs: the machine's RDMA devices; soft: one in the daemon's memory, to\n"
                 "develop against, without any hardware")
      ->type_name("verbs|soft")
      ->capture_default_str()
      ->check(CLI::IsMember({"verbs", "soft"}));
  app.add_option("--log-level", options->log_level, "Least severe messages that are logged")
      ->type_name("debug|info|warning|error")
      ->default_str("info")
      ->transform(CLI::CheckedTransformer(levels).description(""));
  app.footer(
      "SIGTERM and SIGINT end every session in order, then the daemon.\n"
      "Exit status: 0 ended by a signal; 1 could not start, or ended at once by a second signal;\n"
      "2 usage.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? 0 : 2;
    return false;
  }
  options->sockets.mode = static_cast<mode_t>(strtoul(mode.c_str(), nullptr, 8));
  if (!group.empty()) options->sockets.group = getgrnam(group.c_str())->gr_gid;
  return true;
}

}  // namespace mrd
