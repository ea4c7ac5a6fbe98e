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

// Of names that it does not know the parser tells the place of what follows. Where the name stands
// before that in the same line, this is its own column; else `column` again. All count from 0.
int ColumnOfName(std::string_view text, int line, int column, std::string_view message) {
  for (const std::string_view before : {"no field named \"", "enumeration value of \""}) {
    const size_t found = message.find(before);
    if (found == message.npos) continue;
    std::string_view name = message.substr(found + before.size());
    name = name.substr(0, name.find('"'));
    for (; line > 0; --line) text.remove_prefix(text.find('\n') + 1);
    text = text.substr(0, text.find('\n'));
    // A tab is several columns.
    if (name.empty() || text.find('\t') != text.npos || size_t(column) < name.size()) break;
    const size_t at = text.rfind(name, column - name.size());
    if (at != text.npos) return static_cast<int>(at);
  }
  return column;
}

class Collector : public google::protobuf::io::ErrorCollector {
 public:
  Collector(std::string_view text, std::vector<Problem>* problems)
      : text_(text), problems_(problems) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    // The parser quotes the text, which may be anything.
    const bool negative = message == "Expected integer, got: -";
    problems_->push_back({line + 1, ColumnOfName(text_, line, column, message) + 1,
                          Printable(message) + (negative ? "; no number here is negative" : "")});
  }

 private:
  const std::string_view text_;
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
  Collector collector(text, &parsed.problems);
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
