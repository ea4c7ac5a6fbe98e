// mrctl register.
#include "client/mrctl/command_line.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

absl::StatusOr<mrd::Pages> ParsePages(std::string_view text) {
  if (text == "4k" || text == "4K") return mrd::Pages::kBase4K;
  if (text == "thp") return mrd::Pages::kTransparentHuge;
  if (text == "2m" || text == "2M") return mrd::Pages::kHuge2M;
  return absl::InvalidArgumentError(mrd::cli::Expected("4k, thp or 2m", std::string(text)));
}

absl::StatusOr<uint64_t> ParseCount(std::string_view text) {
  return ParseNumber(text, 1, 1'000'000);
}

}  // namespace

void AddRegister(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("register", "Register memory, print its keys,\nhold it until Ctrl-C");
  line.reg.access.set_preset(mrd::v1::Access::REG_WRITE);
  command->add_option("--size", line.size_text, "Of each buffer: bytes, or 4K, 64M, 1G")
      ->required()
      ->type_name("SIZE")
      ->check(Parsed(ParseSize, &line.reg.size));
  command
      ->add_option("--access", line.access_text,
                   "msgs, read, write (as rdma_reg_msgs(3) and so on),\n"
                   "or flags of ibv_reg_mr(3): local_write,\n"
                   "remote_read, remote_write, remote_atomic,\n"
                   "relaxed_ordering, on_demand, hugetlb; several\n"
                   "joined with ','. Default: write")
      ->type_name("ACCESS")
      ->check(Parsed(ParseAccess, &line.reg.access));
  CLI::Option* device =
      command
          ->add_option("--device", line.reg.devices,
                       "Where; may be given again.\nDefault: the first active device")
          ->type_name("NAME")
          ->take_all()
          ->allow_extra_args(false);
  command->add_flag("--all-devices", line.reg.all_devices, "On every device")->excludes(device);
  command
      ->add_option("--pages", line.pages_text,
                   "4k, thp (transparent huge pages) or 2m.\nDefault: 4k")
      ->type_name("PAGES")
      ->check(Parsed(ParsePages, &line.reg.pages));
  command->add_option("--count", line.count_text, "How many buffers, in one call. Default: 1")
      ->type_name("N")
      ->check(Parsed(ParseCount, &line.reg.count));
  command
      ->add_option("--listen", line.listen_text,
                   "Accept peers at this address of a device, and\n"
                   "tell each (private data) address, rkey and length\n"
                   "of up to 12 regions: 64, 32 and 32 bits,\n"
                   "big-endian. Port 0: the daemon chooses")
      ->type_name("ADDR:PORT")
      ->check(Parsed(ParseHostPort, &line.reg.listen));
  command
      ->add_option("--ttl", line.ttl_text,
                   "Leases that lapse unless they are renewed, as\n"
                   "mrctl does while it runs: 10s, 5m, 2h.\n"
                   "Default: as long as the session")
      ->type_name("DURATION")
      ->check(Parsed(ParseDuration, &line.reg.ttl));
  CLI::Option* const domain = command
                                  ->add_option("--domain", line.reg.domain,
                                               "In this named domain, made if there is none.\n"
                                               "Default: a private one")
                                  ->type_name("NAME");
  CLI::Option* const mode = command
                                ->add_option("--domain-mode", line.mode_text,
                                             "Of one that is made: 0600, 0660 (this process's\n"
                                             "group), 0606 or 0666. Default: 0600")
                                ->type_name("MODE")
                                ->check(Parsed(ParseMode, &line.reg.domain_mode))
                                ->needs(domain);
  command->add_flag("--join", line.reg.join, "Do not make the domain: it is there")
      ->needs(domain)
      ->excludes(mode);
  command
      ->add_option("--for", line.for_text,
                   "Hold for so long (10, 5m, 2h), then deregister\nand end")
      ->type_name("DURATION")
      ->check(Parsed(ParseSeconds, &line.reg.seconds));
  command->callback([&line] { line.run = [&line] { return RunRegister(line.global, line.reg); }; });
}

}  // namespace mrctl
