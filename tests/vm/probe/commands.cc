#include "tests/vm/probe/commands.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "client/mrctl/units.h"

namespace probe {
namespace {

// Takes the words of a command one by one. The first mistake stays.
class Arguments final {
 public:
  explicit Arguments(const Words& words) : words_(words) {}

  bool Left() const { return next_ < words_.size(); }

  std::string Word() {
    if (Left()) return words_[next_++];
    Note(Misspoken("a word is missing"));
    return "";
  }
  uint64_t Number() {
    auto number = ParseNumber(Word());
    Note(number.status());
    return number.value_or(0);
  }
  // What follows "NAME=" where the next word begins so.
  std::optional<std::string> Option(std::string_view name) {
    if (!Left()) return std::nullopt;
    const std::string& word = words_[next_];
    if (!word.starts_with(name) || word.size() == name.size() || word[name.size()] != '=') {
      return std::nullopt;
    }
    ++next_;
    return word.substr(name.size() + 1);
  }
  // The same, a number.
  std::optional<uint64_t> NumberOption(std::string_view name) {
    const auto text = Option(name);
    if (!text) return std::nullopt;
    auto number = ParseNumber(*text);
    Note(number.status());
    return number.value_or(0);
  }
  // Whether the next word is this one.
  bool Flag(std::string_view word) {
    if (!Left() || words_[next_] != word) return false;
    ++next_;
    return true;
  }
  std::string Data() {
    auto data = ParseData(Word());
    Note(data.status());
    return data.value_or("");
  }
  void Note(absl::Status status) {
    if (status_.ok() && !status.ok()) status_ = Misspoken(std::string(status.message()));
  }

  // What was wrong, once no more words are wanted.
  absl::Status Status() {
    if (Left()) Note(Misspoken(absl::StrCat("one word too many: ", words_[next_])));
    return status_;
  }

 private:
  const Words& words_;
  size_t next_ = 1;  // After the command itself.
  absl::Status status_;
};

Answer Attach(ProbeClient& client, Arguments& words) {
  mrd::AttachOptions options = {.name = words.Left() ? words.Word() : "probe"};
  options.renew = !words.Flag("norenew");
  options.admin = words.Flag("admin");
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return client.Attach(std::move(options));
}

Answer Buffer(ProbeClient& client, Arguments& words) {
  const std::string name = words.Word();
  const uint64_t size = words.Number();
  const std::string pages = words.Left() ? words.Word() : "4k";
  if (pages != "4k" && pages != "thp" && pages != "2m") words.Note(Misspoken("pages " + pages));
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return client.CreateBuffer(name, size,
                             pages == "4k"    ? mrd::Pages::kBase4K
                             : pages == "thp" ? mrd::Pages::kTransparentHuge
                                              : mrd::Pages::kHuge2M);
}

Answer Memfd(ProbeClient& client, Arguments& words) {
  const std::string name = words.Word();
  MemfdOptions options = {.size = words.Number()};
  while (words.Left()) {
    const std::string option = words.Word();
    if (option == "unsealed") {
      options.sealed = false;
    } else if (option == "sparse") {
      options.populated = false;
    } else if (option == "read_only") {
      options.read_only = true;
    } else if (option == "hugetlb") {
      options.hugetlb = true;
    } else if (option == "at") {
      options.address = words.Number();
    } else {
      words.Note(Misspoken("memfd " + option));
    }
  }
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return client.AdoptMemfd(name, options);
}

Answer Bad(ProbeClient& client, Arguments& words) {
  const std::string name = words.Word();
  auto fd = MakeBadFd(words.Word());
  words.Note(fd.status());
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return client.AdoptAnything(name, fd->get(), 8192);
}

// REGION[:COUNT] BUFFER OFFSET LENGTH ACCESS DEVICE,...|all|- [ttl=MS] [domain=NAME] [newest]
Answer Register(ProbeClient& client, Arguments& words) {
  RegisterRequest request;
  const Words name = Split(words.Word(), ':');
  if (!name.empty()) request.name = name[0];
  if (name.size() == 2) {
    auto count = ParseNumber(name[1]);
    words.Note(count.status());
    request.count = count.value_or(0);
  }
  const std::string buffer = words.Word();
  request.offset = words.Number();
  request.length = words.Number();
  const auto access = mrctl::ParseAccess(words.Word());
  words.Note(access.status());
  const std::string devices = words.Word();
  request.options.ttl = std::chrono::milliseconds(words.NumberOption("ttl").value_or(0));
  request.options.domain = words.Option("domain").value_or("");
  request.options.newest_only = words.Flag("newest");
  if (absl::Status status = words.Status(); !status.ok()) return status;
  request.options.preset = access->preset();
  for (const int flag : access->flags()) {
    request.options.flags.push_back(static_cast<mrd::v1::AccessFlag>(flag));
  }
  if (devices == "all") {
    request.options.all_devices = true;
  } else if (devices != "-") {
    request.options.devices = Split(devices, ',');
  }
  return client.Register(buffer, request);
}

Answer Listen(ProbeClient& client, Arguments& words) {
  mrd::ListenOptions options = {.address = words.Word()};
  const std::string regions = words.Word();
  options.domain = words.Option("domain").value_or("");
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return client.Listen(options, regions);
}

Answer Connect(ProbeClient& client, Arguments& words) {
  const auto peer = mrctl::ParseHostPort(words.Word());
  words.Note(peer.status());
  const std::string regions = words.Word();
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return client.Connect(peer->host, peer->port, regions);
}

// A command of a name and two numbers at most.
template <Answer (ProbeClient::*method)()>
Answer Plain(ProbeClient& client, Arguments& words) {
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return (client.*method)();
}

template <Answer (ProbeClient::*method)(const std::string&)>
Answer Name(ProbeClient& client, Arguments& words) {
  const std::string name = words.Word();
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return (client.*method)(name);
}

Answer Event(ProbeClient& client, Arguments& words) {
  const std::string kind = words.Word();
  const std::string device = words.Word();
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return client.AwaitEvent(kind, device);
}

template <Answer (ProbeClient::*method)(const std::string&, uint64_t)>
Answer NameAndNumber(ProbeClient& client, Arguments& words) {
  const std::string name = words.Word();
  const uint64_t number = words.Number();
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return (client.*method)(name, number);
}

template <Answer (ProbeClient::*method)(const std::string&, uint64_t, const std::string&)>
Answer Bytes(ProbeClient& client, Arguments& words) {
  const std::string name = words.Word();
  const uint64_t offset = words.Number();
  const std::string data = words.Data();
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return (client.*method)(name, offset, data);
}

Answer Punch(ProbeClient& client, Arguments& words) {
  const std::string name = words.Word();
  const uint64_t offset = words.Number();
  const uint64_t length = words.Number();
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return client.PunchHole(name, offset, length);
}

Answer Connections(ProbeClient& client, Arguments& words) {
  const uint64_t connected = words.Number();
  const uint64_t disconnected = words.Number();
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return client.AwaitConnections(connected, disconnected);
}

Answer Sleeper(ProbeClient& client, Arguments& words) {
  const uint64_t seconds = words.Number();
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return client.Sleeper(static_cast<unsigned>(seconds));
}

Answer Renew(ProbeClient& client, Arguments& words) {
  Words names;
  while (words.Left()) names.push_back(words.Word());
  return client.Renew(names);
}

Answer RegisterFor(ProbeClient& client, Arguments& words) {
  const uint64_t seconds = words.Number();
  const std::string device = words.Word();
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return client.RegisterFor(seconds, device);
}

Answer OpenDomain(ProbeClient& client, Arguments& words) {
  const std::string name = words.Word();
  mrd::DomainOptions options;
  options.create = !words.Flag("existing");
  if (const auto mode = words.NumberOption("mode")) options.mode = static_cast<uint32_t>(*mode);
  if (const auto gid = words.NumberOption("group")) options.group = static_cast<uint32_t>(*gid);
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return client.OpenDomain(name, options);
}

// COUNT SEED DEVICE
template <Answer (ProbeClient::*method)(uint64_t, uint64_t, const std::string&)>
Answer AtRandom(ProbeClient& client, Arguments& words) {
  const uint64_t count = words.Number();
  const uint64_t seed = words.Number();
  const std::string device = words.Word();
  if (absl::Status status = words.Status(); !status.ok()) return status;
  return (client.*method)(count, seed, device);
}

using Function = Answer (*)(ProbeClient&, Arguments&);

const std::map<std::string, Function>& Functions() {
  static const std::map<std::string, Function> functions = {
      {"attach", Attach},
      {"detach", Plain<&ProbeClient::Detach>},
      {"lost", Plain<&ProbeClient::AwaitLost>},
      {"event", Event},
      {"status", Plain<&ProbeClient::Status>},
      {"devices", Plain<&ProbeClient::Devices>},
      {"buffer", Buffer},
      {"memfd", Memfd},
      {"dmabuf", NameAndNumber<&ProbeClient::AdoptDmaBuf>},
      {"bad", Bad},
      {"drop", Name<&ProbeClient::Drop>},
      {"release", Name<&ProbeClient::Release>},
      {"truncate", NameAndNumber<&ProbeClient::Truncate>},
      {"punch", Punch},
      {"write", Bytes<&ProbeClient::Write>},
      {"expect", Bytes<&ProbeClient::Expect>},
      {"register", Register},
      {"deregister", Name<&ProbeClient::Deregister>},
      {"leases", Plain<&ProbeClient::Leases>},
      {"listen", Listen},
      {"connect", Connect},
      {"connections", Connections},
      {"disconnect", Plain<&ProbeClient::Disconnect>},
      {"sleeper", Sleeper},
      {"badfds", AtRandom<&ProbeClient::BadFds>},
      {"cycles", AtRandom<&ProbeClient::RunCycles>},
      {"renew", Renew},
      {"keys", Name<&ProbeClient::Keys>},
      {"add_keys", Plain<&ProbeClient::AddKeys>},
      {"register_for", RegisterFor},
      {"events", NameAndNumber<&ProbeClient::AwaitEvents>},
      {"untaken", Name<&ProbeClient::CountEvents>},
      {"totals", Plain<&ProbeClient::Totals>},
      {"open_domain", OpenDomain},
      {"close_domain", Name<&ProbeClient::CloseDomain>},
      {"domains", Plain<&ProbeClient::Domains>},
  };
  return functions;
}

}  // namespace

const char kCommands[] =
    "  attach [NAME [norenew] [admin]]                detach\n"
    "  lost (wait until the daemon has gone)\n"
    "  event KIND DEVICE         waits for it: of a device\n"
    "  status                    devices              leases        totals (of all, for admins)\n"
    "  buffer B SIZE [4k|thp|2m]             the library's\n"
    "  memfd B SIZE [unsealed] [sparse] [read_only] [hugetlb] [at ADDRESS]   own, adopted\n"
    "  dmabuf B SIZE             of /dev/udmabuf\n"
    "  bad B KIND                no memory: pipe, socket, directory, ...\n"
    "  release B                 drop B\n"
    "  truncate B SIZE           answers errno=NAME where the kernel refuses\n"
    "  punch B OFFSET LENGTH     frees its pages\n"
    "  write B OFFSET DATA       expect B OFFSET DATA (waits for it)\n"
    "  register R[:COUNT] B OFFSET LENGTH ACCESS DEVICE,...|all|- [ttl=MS] [domain=NAME] [newest]\n"
    "                            in one call\n"
    "  deregister R              renew [R...] (all; attach with norenew, or the library does)\n"
    "  events KIND LEASES        waits for events of so many leases: LAPSED, REVOKED, ...\n"
    "  untaken KIND              how many have come that no `events` answered\n"
    "  open_domain NAME [existing] [mode=MODE] [group=GID]    close_domain NAME    domains\n"
    "  listen ADDRESS R [domain=NAME]   accepts all, and tells each the first region of R\n"
    "  connect ADDRESS:PORT R    connections CONNECTED DISCONNECTED (waits)   disconnect\n"
    "  sleeper SECONDS           a child that holds every descriptor of this process\n"
    "  badfds COUNT SEED DEVICE  tries to register bad descriptors\n"
    "  cycles COUNT SEED DEVICE  registers and deregisters\n";

Answer RunCommand(ProbeClient& client, const Words& words) {
  const auto found = Functions().find(words[0]);
  if (found == Functions().end()) return Misspoken("no such command: " + words[0]);
  if (!client.attached() && words[0] != "attach") return Misspoken("attach first");
  Arguments arguments(words);
  return found->second(client, arguments);
}

}  // namespace probe
