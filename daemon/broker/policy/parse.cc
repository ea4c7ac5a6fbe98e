#include "daemon/broker/policy/parse.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/broker/policy/check.h"
#include "daemon/broker/policy/text.h"

namespace mrd::policy {
namespace {

using google::protobuf::TextFormat;

constexpr int kDeepest = 16;  // Messages within messages.

class Collector : public google::protobuf::io::ErrorCollector {
 public:
  explicit Collector(std::vector<Problem>* problems) : problems_(problems) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    // The parser quotes the text, which may be anything.
    problems_->push_back({line + 1, column + 1, Printable(message)});
  }

 private:
  std::vector<Problem>* const problems_;
};

// Of a byte of the text; a column is a byte.
Problem At(std::string_view text, size_t offset, std::string what) {
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t begin = before.rfind('\n');
  const size_t column = offset - (begin == before.npos ? 0 : begin + 1) + 1;
  return {static_cast<int>(line), static_cast<int>(column), std::move(what)};
}

}  // namespace

Parsed Parse(std::string_view text) {
  Parsed parsed;
  if (text.size() > kMostFileBytes) {
    parsed.problems.push_back(
        {0, 0, absl::StrCat("the file is larger than ", kMostFileBytes, " bytes")});
    return parsed;
  }
  if (const size_t bad = InvalidUtf8At(text); bad < text.size()) {
    parsed.problems.push_back(At(text, bad, "this byte is not UTF-8"));
    return parsed;
  }
  Collector collector(&parsed.problems);
  TextFormat::ParseInfoTree places;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&collector);
  parser.WriteLocationsTo(&places);
  parser.SetRecursionLimit(kDeepest);
  const bool understood = parser.ParseFromString(std::string(text), &parsed.policy);
  if (!understood && parsed.problems.empty()) {
    parsed.problems.push_back({0, 0, "the file is not a policy in protobuf's text format"});
  }
  if (parsed.problems.empty()) Check(parsed.policy, places, &parsed);
  std::stable_sort(parsed.problems.begin(), parsed.problems.end(),
                   [](const Problem& a, const Problem& b) {
                     return a.line != b.line ? a.line < b.line : a.column < b.column;
                   });
  if (parsed.problems.size() > kMostProblems) parsed.problems.resize(kMostProblems);
  if (!parsed.ok()) parsed.policy.Clear();
  return parsed;
}

std::string ToString(const std::string& file, const Problem& problem) {
  if (problem.line == 0) return absl::StrCat(file, ": ", problem.what);
  return absl::StrCat(file, ":", problem.line, ":", problem.column, ": ", problem.what);
}

}  // namespace mrd::policy
