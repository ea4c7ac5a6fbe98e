#include "daemon/options.h"

#include <grp.h>

#include <cstdio>
#include <map>
#include <sstream>
#include <string_view>

#include "daemon/host/metrics/listen_address.h"
#include "daemon/usage.h"
#include "mrd/v1/version.h"

namespace mrd {
namespace {

// Both return the text of an error.
std::string CheckMode(const std::string& text) {
  const bool octal = !text.empty() && text.find_first_not_of("01234567") == std::string::npos;
  if (octal && strtoul(text.c_str(), nullptr, 8) <= 0777) return "";
  return cli::Expected("an octal mode such as 0660", text);
}

std::string CheckGroup(const std::string& name) {
  if (getgrnam(name.c_str()) != nullptr) return "";
  return cli::Expected("a group of this machine (getent group lists them)", name);
}

std::string CheckStore(const std::string& text) {
  const bool number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (number && text.size() <= 6) return "";
  return cli::Expected("a number of descriptors, as FileDescriptorStoreMax= of the unit", text);
}

// node_exporter reads no file of another name.
std::string CheckTextfile(const std::string& path) {
  constexpr std::string_view kEnd = ".prom";
  if (path.starts_with('/') && path.ends_with(kEnd) && !path.ends_with("/.prom")) return "";
  return cli::Expected("an absolute path that ends in .prom", path);
}

}  // namespace

bool ParseOptions(int argc, char** argv, Options* options, int* exit_code) {
  CLI::App app{
      "mrd, the memory-region daemon: registers clients' shared memory with RDMA\n"
      "devices and owns their endpoints, over Unix sockets."};
  cli::Prepare(app, "mrd");
  app.set_version_flag("--version", std::string("mrd ") + kVersion);
  std::string mode = "0660";
  std::string group;
  std::string level = "info";
  const std::map<std::string, spdlog::level::level_enum> levels = {{"debug", spdlog::level::debug},
                                                                   {"info", spdlog::level::info},
                                                                   {"warning", spdlog::level::warn},
                                                                   {"error", spdlog::level::err}};
  app.add_option("--socket-dir", options->sockets.dir,
                 "Directory of mrd.sock and attach.sock;\nthe admin socket is in DIR-admin")
      ->type_name("DIR")
      ->capture_default_str()
      ->check(cli::Directory());
  app.add_option("--socket-mode", mode, "Mode of the sockets that clients connect to")
      ->type_name("OCTAL")
      ->capture_default_str()
      ->check(CLI::Validator(CheckMode, ""));
  app.add_option("--socket-group", group,
                 "Group of the sockets that clients connect to;\ndefault: mrd's own")
      ->type_name("NAME")
      ->check(CLI::Validator(CheckGroup, ""));
  app.add_option("--fabric", options->fabric,
                 "verbs: the machine's RDMA devices; soft: one\n"
                 "in the daemon's memory, to develop against,\n"
                 "without any hardware")
      ->type_name("verbs|soft")
      ->capture_default_str()
      ->check(cli::OneOf({"verbs", "soft"}));
  app.add_option("--config", options->config,
                 "The policy: who may have how much. Default:\n/etc/mrd/mrd.textproto, which may "
                 "be missing")
      ->type_name("FILE")
      ->check(cli::File());
  app.add_option("--log-level", level, "Least severe messages that are logged")
      ->type_name("debug|info|warning|error")
      ->capture_default_str()
      ->check(cli::OneOf({"debug", "info", "warning", "error"}));
  app.add_option("--metrics-listen", options->metrics_listen,
                 "Serve metrics at http://ADDRESS/metrics:\n"
                 "127.0.0.1:PORT, [::1]:PORT or unix:PATH (mode\n"
                 "0660); no other address. Default: not served")
      ->type_name("ADDRESS")
      ->check(CLI::Validator(host::CheckListenAddress, ""));
  app.add_option("--metrics-textfile", options->metrics_textfile,
                 "Write metrics into this file every 15 s, for the\n"
                 "textfile collector of node_exporter; removed in\n"
                 "the end. Default: not written")
      ->type_name("PATH.prom")
      ->check(CLI::Validator(CheckTextfile, ""));
  app.add_option("--store", options->store,
                 "File descriptors that systemd keeps for mrd over\n"
                 "a restart: FileDescriptorStoreMax= of its unit,\n"
                 "which tells nobody. 0: none are kept")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Validator(CheckStore, ""));
  app.footer(
      "SIGTERM and SIGINT end every session in order, then the daemon. SIGHUP reads\n"
      "the policy anew. Sockets that systemd passes (socket units) are served in place\n"
      "of those in DIR.\n"
      "Exit status: 0 ended by a signal; 1 could not start, or ended at once by a\n"
      "second signal; 2 usage.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    std::ostringstream text;
    app.exit(help_or_version, text);
    *exit_code = fputs(text.str().c_str(), stdout) >= 0 && fflush(stdout) == 0 ? 0 : 1;
    return false;
  } catch (const CLI::ParseError& error) {
    fprintf(stderr, "mrd: %s\n", cli::UsageError(app, error).c_str());
    *exit_code = 2;
    return false;
  }
  options->log_level = levels.at(level);
  options->sockets.mode = static_cast<mode_t>(strtoul(mode.c_str(), nullptr, 8));
  if (!group.empty()) options->sockets.group = getgrnam(group.c_str())->gr_gid;
  return true;
}

}  // namespace mrd
