#include "tests/fake/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace mrd::fake {
namespace {

const std::set<std::string>& Calls() {
  static const auto* calls = new std::set<std::string>{
      "open", "query",   "port",    "pd",     "pd_free", "reg",          "dereg",
      "cq",   "channel", "id",      "bind",   "listen",  "resolve_addr", "resolve_route",
      "qp",   "accept",  "connect", "migrate"};
  return *calls;
}

[[noreturn]] void Wrong(const std::string& what) {
  fprintf(stderr, "fake verbs: cannot read '%s' (see tests/fake/spec.h)\n", what.c_str());
  abort();
}

std::vector<std::string> Split(const std::string& text, char separator) {
  return absl::StrSplit(text, separator, absl::SkipEmpty());
}

uint64_t Number(const std::string& text) {
  uint64_t value;
  if (!absl::SimpleAtoi(text, &value)) Wrong(text);
  return value;
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

CallSpec& CallOf(DeviceSpec& device, const std::string& name, const std::string& suffix) {
  const std::string call = name.substr(0, name.size() - suffix.size());
  if (Calls().count(call) == 0) Wrong(name);
  return device.calls[call];
}

void Set(DeviceSpec& device, const std::string& name, const std::string& value) {
  if (name == "transport") {
    if (value != "roce" && value != "ib" && value != "iwarp") Wrong(value);
    device.transport = value;
  } else if (name == "address") {
    device.address = value;
  } else if (name == "active") {
    device.active = Number(value) != 0;
  } else if (name == "endpoints") {
    device.endpoints = Number(value) != 0;
  } else if (name == "dma_buf") {
    device.dma_buf = Number(value) != 0;
  } else if (name == "odp") {
    device.odp = Number(value) != 0;
  } else if (name == "atomics") {
    device.atomics = Number(value) != 0;
  } else if (name == "max_mr") {
    device.max_mr = Number(value);
  } else if (name == "max_pd") {
    device.max_pd = Number(value);
  } else if (name == "max_qp") {
    device.max_qp = Number(value);
  } else if (name == "max_mr_size") {
    device.max_mr_size = Number(value);
  } else if (EndsWith(name, "_delay_ms")) {
    CallOf(device, name, "_delay_ms").delay_ms = Number(value);
  } else if (EndsWith(name, "_errno")) {
    CallOf(device, name, "_errno").fault = ParseFault(value);
  } else {
    Wrong(name);
  }
}

}  // namespace

Fault ParseFault(const std::string& text) {
  const size_t at = text.find('@');
  const std::string name = text.substr(0, at);
  Fault fault;
  for (int error = 1; error < 256 && fault.error == 0; ++error) {
    const char* known = strerrorname_np(error);
    if (known != nullptr && name == known) fault.error = error;
  }
  if (fault.error == 0) Wrong(text);
  if (at == std::string::npos) return fault;
  std::string place = text.substr(at + 1);
  fault.once = place.empty() || place.back() != '+';
  if (!fault.once) place.pop_back();
  fault.first = Number(place);
  return fault;
}

std::vector<DeviceSpec> ParseSpec(const std::string& text) {
  std::vector<DeviceSpec> devices;
  for (const std::string& setting : Split(text, ';')) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) Wrong(setting);
    const std::string key = setting.substr(0, equals);
    const std::string value = setting.substr(equals + 1);
    if (key == "devices") {
      for (const std::string& name : Split(value, ',')) {
        DeviceSpec device;
        device.name = name;
        device.address = "10.99." + std::to_string(devices.size()) + ".1";
        devices.push_back(device);
      }
      continue;
    }
    const size_t dot = key.find('.');
    if (dot == std::string::npos) Wrong(key);
    bool found = false;
    for (DeviceSpec& device : devices) {
      if (device.name != key.substr(0, dot)) continue;
      Set(device, key.substr(dot + 1), value);
      found = true;
    }
    if (!found) Wrong(key);
  }
  return devices;
}

}  // namespace mrd::fake
