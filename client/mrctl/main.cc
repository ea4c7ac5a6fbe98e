// mrctl: looks at mrd and tries it out. This file knows the command line; each command has its own.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "client/mrctl/command.h"
#include "client/mrctl/register.h"
#include "client/mrctl/units.h"
#include "mrd/v1/version.h"

namespace {

constexpr char kFooter[] =
    "The daemon's sockets are looked for in --socket-dir, else $MRD_SOCKET_DIR, else /run/mrd.\n"
    "\n"
    "Exit codes: 0 done; 1 refused, by the daemon or the kernel; 2 wrong usage;\n"
    "3 the daemon cannot be reached, or went away.";

absl::StatusOr<mrd::Pages> ParsePages(std::string_view text) {
  if (text == "4k" || text == "4K") return mrd::Pages::kBase4K;
  if (text == "thp") return mrd::Pages::kTransparentHuge;
  if (text == "2m" || text == "2M") return mrd::Pages::kHuge2M;
  return absl::InvalidArgumentError("pages \"" + std::string(text) + "\": expected 4k, thp or 2m");
}

// A CLI11 check by one of the parsers, which keeps what it parsed.
template <typename Value>
CLI::Validator Parsed(absl::StatusOr<Value> (*parse)(std::string_view), Value* value) {
  return CLI::Validator(
      [parse, value](const std::string& text) {
        auto parsed = parse(text);
        if (!parsed.ok()) return std::string(parsed.status().message());
        *value = *parsed;
        return std::string();
      },
      "");
}

// What the parsers write to, with the lifetime of the program's one run.
struct CommandLine {
  mrctl::GlobalOptions global;
  mrctl::RegisterCommand reg;
  mrctl::HostPort listen;
  std::string size_text, access_text, pages_text, listen_text;
  double seconds = 0;
  uint64_t session_id = 0;
};

CLI::App* AddRegister(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("register", "Register memory, print its keys, hold it until Ctrl-C");
  line.reg.access.set_preset(mrd::v1::Access::REG_WRITE);
  command->add_option("--size", line.size_text, "Of each buffer: bytes, or 4K, 64M, 1G")
      ->required()
      ->type_name("SIZE")
      ->check(Parsed(mrctl::ParseSize, &line.reg.size));
  command
      ->add_option("--access", line.access_text,
                   "msgs, read, write (as rdma_reg_msgs(3) and so on),\n"
                   "or flags of ibv_reg_mr(3): local_write,\n"
                   "remote_read, remote_write, remote_atomic,\n"
                   "relaxed_ordering, on_demand, hugetlb; several\n"
                   "joined with ','. Default: write")
      ->type_name("ACCESS")
      ->check(Parsed(mrctl::ParseAccess, &line.reg.access));
  CLI::Option* device =
      command
          ->add_option("--device", line.reg.devices,
                       "Where; may be given again.\nDefault: the first active device")
          ->type_name("NAME")
          ->allow_extra_args(false);
  command->add_flag("--all-devices", line.reg.all_devices, "On every device")->excludes(device);
  command
      ->add_option("--pages", line.pages_text,
                   "4k, thp (transparent huge pages) or 2m.\nDefault: 4k")
      ->type_name("PAGES")
      ->check(Parsed(ParsePages, &line.reg.pages));
  command->add_option("--count", line.reg.count, "How many buffers, in one call. Default: 1")
      ->type_name("N")
      ->check(CLI::Range(1U, 1'000'000U).description(""));
  command
      ->add_option("--listen", line.listen_text,
                   "Accept peers at this address of a device, and\n"
                   "tell each (private data) address, rkey and length\n"
                   "of up to 12 regions: 64, 32 and 32 bits,\n"
                   "big-endian. Port 0: the daemon chooses")
      ->type_name("ADDR:PORT")
      ->check(Parsed(mrctl::ParseHostPort, &line.listen));
  command->add_option("--for", line.seconds, "Hold for so long, then deregister and end")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 1e9).description(""));
  return command;
}

int Run(int argc, char** argv) {
  CommandLine line;
  CLI::App app("mrctl " + std::string(mrd::kVersion) +
               ": looks at mrd, the memory-region daemon, and tries it out.");
  app.name("mrctl");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();  // Global options may stand after the command.
  app.add_option("--socket-dir", line.global.socket_dir, "The directory of the daemon's sockets")
      ->type_name("DIR");
  app.add_flag("--json", line.global.json, "One JSON document on stdout, fields as in the API");
  app.add_flag("--admin", line.global.admin,
               "Attach as an operator, over DIR-admin.\n"
               "Implied by sessions and leases");
  app.set_version_flag("--version", "mrctl " + std::string(mrd::kVersion), "Print the version");
  CLI::App* devices = app.add_subcommand("devices", "List the RDMA devices of the daemon");
  CLI::App* status =
      app.add_subcommand("status", "Show the daemon and your limits; --admin: all it holds");
  CLI::App* sessions = app.add_subcommand("sessions", "List attached processes (admin)");
  CLI::App* leases = app.add_subcommand("leases", "List the regions of all sessions (admin)");
  leases->add_option("--session", line.session_id, "Only of this one")->type_name("ID");
  CLI::App* reg = AddRegister(app, line);
  CLI::App* version = app.add_subcommand("version", "Print the version");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // 0 for --help and --version.
    return app.exit(error) == 0 ? mrctl::kOk : mrctl::kUsage;
  }
  if (sessions->parsed() || leases->parsed()) line.global.admin = true;
  if (reg->count("--listen") > 0) line.reg.listen = line.listen;
  if (reg->count("--for") > 0) line.reg.seconds = line.seconds;
  if (devices->parsed()) return mrctl::RunDevices(line.global);
  if (status->parsed()) return mrctl::RunStatus(line.global);
  if (sessions->parsed()) return mrctl::RunSessions(line.global);
  if (leases->parsed()) return mrctl::RunLeases(line.global, line.session_id);
  if (version->parsed()) return mrctl::RunVersion(line.global);
  return mrctl::RunRegister(line.global, line.reg);
}

}  // namespace

int main(int argc, char** argv) {
  // Started with closed ones: a socket would get the number of standard output, and its text.
  int fd;
  do {
    fd = open("/dev/null", O_RDONLY);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
  const int code = Run(argc, argv);
  // A full disk must not look like success to the script that reads the file.
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
  fprintf(stderr, "mrctl: cannot write to standard output\n");
  return code == mrctl::kOk ? mrctl::kRefused : code;
}
