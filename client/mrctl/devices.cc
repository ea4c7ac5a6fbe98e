// mrctl devices: what the daemon owns, and what it can do.
#include <algorithm>
#include <string>
#include <vector>

#include "client/mrctl/command.h"
#include "client/mrctl/table.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

using mrd::v1::Device;

std::string TransportOf(const Device& device) {
  switch (device.transport()) {
    case Device::INFINIBAND:
      return "InfiniBand";
    case Device::ROCE:
      return "RoCE";
    case Device::IWARP:
      return "iWARP";
    case Device::SOFT:
      return "soft";
    default:
      return "?";
  }
}

std::string StateOf(const Device& device) {
  return device.state() == Device::ACTIVE ? "active"
         : device.state() == Device::DOWN ? "down"
                                          : "?";
}

// What it can do beyond local and remote reads and writes, which every device can.
std::string ExtrasOf(const Device& device) {
  std::vector<mrd::v1::AccessFlag> extras;
  for (const int flag : device.access_flags()) {
    if (flag != mrd::v1::LOCAL_WRITE && flag != mrd::v1::REMOTE_WRITE &&
        flag != mrd::v1::REMOTE_READ) {
      extras.push_back(static_cast<mrd::v1::AccessFlag>(flag));
    }
  }
  return FormatAccess(extras);
}

std::string Join(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : first + ", " + second;
}

std::string NotesOf(const Device& device) {
  std::string notes = device.endpoints() ? "" : "no endpoints";
  if (!device.any_address()) notes = Join(notes, "library's addresses only");
  return Join(notes, ExtrasOf(device));
}

// How many regions there are on it is told to admins only.
std::string RegionsOf(const Device& device) {
  return (device.has_regions() ? std::to_string(device.regions()) : "-") + "/" +
         std::to_string(device.max_regions());
}

std::string TextOf(const std::vector<Device>& devices) {
  Table table({"DEVICE", "TRANSPORT", "STATE", ">REGIONS", ">LARGEST", "ADDRESSES"});
  std::string notes;
  bool soft = false;
  for (const Device& device : devices) {
    soft |= device.transport() == Device::SOFT;
    const std::string first = device.addresses().empty() ? "-" : device.addresses(0);
    table.Add({device.name(), TransportOf(device), StateOf(device), RegionsOf(device),
               FormatSize(device.max_region_bytes()), first});
    for (int i = 1; i < device.addresses_size(); ++i) {
      table.Add({"", "", "", "", "", device.addresses(i)});
    }
    const std::string note = NotesOf(device);
    if (!note.empty()) notes += device.name() + ": " + note + "\n";
  }
  if (table.empty()) return "no devices\n";
  std::string text = table.Text() + (notes.empty() ? "" : "\n" + notes);
  if (soft) {
    text += "\nsoft devices lie in the daemon's memory, without hardware: to develop against.\n";
  }
  return text;
}

}  // namespace

int RunDevices(const GlobalOptions& options) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto devices = client->ListDevices();
  if (!devices.ok()) return Fail(options, devices.status());
  if (!options.json) return Print(options, TextOf(*devices));
  mrd::v1::ListDevicesResponse response;
  response.mutable_devices()->Add(devices->begin(), devices->end());
  return PrintJson(options, response);
}

}  // namespace mrctl
