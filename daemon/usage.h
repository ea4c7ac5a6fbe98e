// What a person reads who got a command line wrong: one line that says what was wrong and what is
// allowed. CLI11's own texts are for who wrote the program.
#ifndef MRD_DAEMON_USAGE_H_
#define MRD_DAEMON_USAGE_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace mrd::cli {

// Sets how `app` takes options, and names it; first of all.
void Prepare(CLI::App& app, const std::string& name);

// Of an error of app.parse(), other than CLI::Success.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error);

// "expected `what`, not "`text`"": what validators of options say.
std::string Expected(const std::string& what, const std::string& text);

// Takes these words and no others.
CLI::Validator OneOf(std::vector<std::string> words);

// Takes a path.
CLI::Validator Directory();
CLI::Validator File();

}  // namespace mrd::cli

#endif  // MRD_DAEMON_USAGE_H_
