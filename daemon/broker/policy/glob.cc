#include "daemon/broker/policy/glob.h"

namespace mrd::policy {
namespace {

// Takes the first component from `rest`. REQUIRES: it begins with '/'.
std::string_view TakeComponent(std::string_view* rest) {
  const size_t end = rest->find('/', 1);
  const std::string_view component = rest->substr(1, end == rest->npos ? end : end - 1);
  *rest = end == rest->npos ? std::string_view() : rest->substr(end);
  return component;
}

}  // namespace

bool NameMatches(std::string_view glob, std::string_view name) {
  // Only the last '*' is ever tried again: what an earlier one could take, it can take as well. So
  // no more than one pass of the name for each byte of the pattern.
  size_t star = glob.npos;
  size_t taken_to = 0;  // By that '*'.
  size_t g = 0;
  size_t n = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      taken_to = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g;
      ++n;
    } else if (star != glob.npos) {
      g = star + 1;
      n = ++taken_to;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

std::optional<std::string_view> MatchedPath(std::string_view glob, std::string_view path) {
  if (glob.empty() || path.empty() || path[0] != '/' || glob[0] != '/') return std::nullopt;
  if (glob == "/") return path.substr(0, 1);  // All of them are below it.
  std::string_view rest = path;
  while (!glob.empty()) {
    if (rest.empty()) return std::nullopt;
    const std::string_view component = TakeComponent(&rest);
    if (component.empty() || !NameMatches(TakeComponent(&glob), component)) return std::nullopt;
  }
  return path.substr(0, path.size() - rest.size());
}

bool PathCovers(std::string_view wide, std::string_view narrow) {
  if (wide == "/") return true;
  if (narrow == "/") return false;
  while (!wide.empty()) {
    if (narrow.empty()) return false;
    const std::string_view w = TakeComponent(&wide);
    const std::string_view n = TakeComponent(&narrow);
    if (w != "*" && w != n) return false;
  }
  return true;
}

std::string NameGlobProblem(std::string_view glob) {
  if (glob.empty()) return "it is empty";
  if (glob.size() > kMostGlobBytes) {
    return "it is longer than " + std::to_string(kMostGlobBytes) + " bytes";
  }
  if (glob.find('[') != glob.npos) return "'[' has no meaning in a pattern; use '*' or '?'";
  if (glob.find('/') != glob.npos) return "a device's name has no '/'";
  return "";
}

std::string PathGlobProblem(std::string_view glob) {
  if (glob.size() > kMostGlobBytes) {
    return "it is longer than " + std::to_string(kMostGlobBytes) + " bytes";
  }
  if (glob.empty() || glob[0] != '/') return "a cgroup begins with '/'";
  if (glob.find('[') != glob.npos) return "'[' has no meaning in a pattern; use '*' or '?'";
  if (glob.find("//") != glob.npos) return "it has an empty part between two '/'";
  if (glob.find("**") != glob.npos) {
    return "'**' has no meaning in a pattern; one matches all below it anyway";
  }
  if (glob.size() > 1 && glob.back() == '/') return "leave out the '/' at its end";
  return "";
}

}  // namespace mrd::policy
