// Patterns of the policy: '*' for any text and '?' for any one byte, neither of them for a '/'; all
// else is literal. Takes at most (length of the pattern) x (length of the text) steps, whatever
// both are.
#ifndef MRD_DAEMON_BROKER_POLICY_GLOB_H_
#define MRD_DAEMON_BROKER_POLICY_GLOB_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mrd::policy {

inline constexpr size_t kMostGlobBytes = 1024;

// The whole of `name`, which has no '/', is described by `glob`.
bool NameMatches(std::string_view glob, std::string_view name);

// The beginning of `path` that `glob` describes: whole components, so that the cgroup itself
// matches, and all below it. Nothing where none does.
std::optional<std::string_view> MatchedPath(std::string_view glob, std::string_view path);

// True only where `wide` matches all that `narrow` does; false says nothing.
bool PathCovers(std::string_view wide, std::string_view narrow);

// What is wrong with a pattern of device names or of cgroups; empty: nothing.
std::string NameGlobProblem(std::string_view glob);
std::string PathGlobProblem(std::string_view glob);

}  // namespace mrd::policy

#endif  // MRD_DAEMON_BROKER_POLICY_GLOB_H_
