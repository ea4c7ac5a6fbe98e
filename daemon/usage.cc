#include "daemon/usage.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace mrd::cli {
namespace {

std::string Join(const std::vector<std::string>& words, const std::string& before_last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 < words.size() ? ", " : before_last;
    text += words[i];
  }
  return text;
}

// The commands and options of `app`, and the options that it has from `parent`.
std::string Taken(const CLI::App& app, const CLI::App& parent) {
  std::vector<std::string> words;
  for (const CLI::App* command : app.get_subcommands(nullptr)) words.push_back(command->get_name());
  for (const CLI::App* each : {&app, &parent}) {
    for (const CLI::Option* option : each->get_options()) {
      const std::string name = option->get_name();
      if (std::find(words.begin(), words.end(), name) == words.end()) words.push_back(name);
    }
  }
  return Join(words, " and ");
}

}  // namespace

void Prepare(CLI::App& app, const std::string& name) {
  app.name(name);
  auto formatter = std::make_shared<CLI::Formatter>();
  formatter->column_width(27);  // CLI11's 30 leaves too little of 80.
  app.formatter(formatter);
}

std::string UsageError(const CLI::App& app, const CLI::ParseError& error) {
  // Commands have commands of their own.
  const CLI::App* command = &app;
  std::string name = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().back();
    name += " " + command->get_name();
  }
  const CLI::App& at = *command;
  const std::string takes = "; " + name + " takes " + Taken(at, app);
  // Before what CLI11 found: a wrong command is to it a missing one.
  const auto unknown = app.remaining(/*recurse=*/true);
  if (!unknown.empty()) return "unknown argument \"" + unknown.front() + "\"" + takes;
  if (!at.get_subcommands(nullptr).empty()) return "no command given" + takes;
  for (const CLI::Option* option : at.get_options()) {
    if (error.get_name() != "ArgumentMismatch" || option->count() < 2 ||
        option->get_multi_option_policy() != CLI::MultiOptionPolicy::Throw) {
      continue;
    }
    return option->get_name() + " is given " + std::to_string(option->count()) +
           " times; give it once";
  }
  std::string what = error.what();
  if (error.get_name() == "ArgumentMismatch") {
    what = what.substr(0, what.find(':')) + ": no value";  // "--for: 1 required SECONDS missing"
  } else if (const size_t flag = what.find("--");
             error.get_name() == "ConversionError" && flag != std::string::npos) {
    what = what.substr(flag) + ": a flag takes no value";  // "Could not convert: --json = abc"
  }
  return what + "; see " + name + " --help";
}

std::string Expected(const std::string& what, const std::string& text) {
  return "expected " + what + ", not \"" + text + "\"";
}

CLI::Validator OneOf(std::vector<std::string> words) {
  return CLI::Validator(
      [words = std::move(words)](const std::string& text) {
        const bool known = std::find(words.begin(), words.end(), text) != words.end();
        return known ? "" : Expected(Join(words, " or "), text);
      },
      "");
}

CLI::Validator Directory() {
  return CLI::Validator(
      [](const std::string& text) { return text.empty() ? Expected("a directory", text) : ""; },
      "");
}

CLI::Validator File() {
  return CLI::Validator(
      [](const std::string& text) { return text.empty() ? Expected("a file", text) : ""; }, "");
}

}  // namespace mrd::cli
