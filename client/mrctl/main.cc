// mrctl: looks at mrd, tries it out, and is the operator's hand on it. command_line.h has the
// commands.
#include <fcntl.h>
#include <unistd.h>

#include <sstream>
#include <string>

#include "client/mrctl/command_line.h"
#include "mrd/v1/version.h"

namespace {

constexpr char kFooter[] =
    "The daemon's sockets are looked for in --socket-dir, else $MRD_SOCKET_DIR,\n"
    "else /run/mrd.\n"
    "\n"
    "Exit status: 0 done; 1 refused, by the daemon or the kernel, or a policy has\n"
    "errors, or doctor found a problem, or the output could not be written; 2 wrong\n"
    "usage; 3 the daemon cannot be reached (it does not run or not answer, or its\n"
    "socket is not for this user), or went away.";

int Run(int argc, char** argv) {
  mrctl::CommandLine line;
  CLI::App app("mrctl " + std::string(mrd::kVersion) +
               ": looks at mrd, the memory-region daemon, and tries it out.");
  mrd::cli::Prepare(app, "mrctl");
  // An option given again replaces the first, as a script's users expect; CLI11 would refuse it.
  app.option_defaults()->take_last();
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();  // Global options may stand after the command.
  app.add_option("--socket-dir", line.global.socket_dir, "The directory of the daemon's sockets")
      ->type_name("DIR")
      ->check(mrd::cli::Directory());
  app.add_flag("--json", line.global.json,
               "One JSON document on stdout, fields as in the API;\n"
               "errors and notes on stderr: one JSON object a line");
  app.add_flag("--admin", line.global.admin,
               "Attach as an admin, over DIR-admin.\n"
               "Implied by the commands that say (admin)");
  app.set_version_flag("--version", "mrctl " + std::string(mrd::kVersion), "Print the version");
  mrctl::AddViews(app, line);
  mrctl::AddRegister(app, line);
  mrctl::AddActions(app, line);
  mrctl::AddPolicy(app, line);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    std::ostringstream text;
    app.exit(help_or_version, text);
    return mrctl::Print(line.global, text.str());
  } catch (const CLI::ParseError& error) {
    line.global.json = app.count("--json") > 0;
    return mrctl::Fail(line.global, absl::InvalidArgumentError(mrd::cli::UsageError(app, error)));
  }
  return line.run();
}

}  // namespace

int main(int argc, char** argv) {
  // Started with closed ones: a socket would get the number of standard output, and its text.
  int fd;
  do {
    fd = open("/dev/null", O_RDONLY);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
  return Run(argc, argv);
}
