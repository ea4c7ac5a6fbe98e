#include "tests/bench/report.h"

#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "mrd/v1/version.h"

namespace mrd::bench {
namespace {

const char* NameOf(Judgement judgement) {
  switch (judgement) {
    case Judgement::kMet:
      return "met";
    case Judgement::kMissed:
      return "MISSED";
    case Judgement::kNotJudged:
      return "not judged";
  }
  return "";
}

std::string Time(double seconds) {
  if (seconds >= 1e-2) return absl::StrFormat("%.1f ms", seconds * 1e3);
  if (seconds >= 1e-4) return absl::StrFormat("%.0f us", seconds * 1e6);
  return absl::StrFormat("%.2f us", seconds * 1e6);
}

// What the sum of the terms is made of.
std::string Explain(const Verdict& verdict, const Samples& samples) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < verdict.chosen.size(); ++i) {
    const double factor = verdict.promise->allowed[i].factor;
    const std::string times = factor == 1  ? ""
                              : factor > 1 ? absl::StrFormat("%g x ", factor)
                                           : absl::StrFormat("1/%g x ", 1 / factor);
    parts.push_back(absl::StrCat(times, Time(samples.MedianOf(verdict.chosen[i])), " (",
                                 verdict.chosen[i], ")"));
  }
  return absl::StrJoin(parts, " + ");
}

double LoadAverage() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : -1;
}

// The texts are this program's own: nothing in them needs escaping.
std::string Quoted(const std::string& text) { return "\"" + text + "\""; }

std::string ToJson(const Verdict& verdict) {
  const Promise& promise = *verdict.promise;
  const bool limited = promise.allowed.empty();
  const bool ratio = !limited && verdict.complete;
  return absl::StrCat(
      "    {\"promise\": ", Quoted(promise.what), ", \"measured_seconds\": ", verdict.measured,
      ratio
          ? absl::StrCat(", \"allowed_seconds\": ", verdict.allowed, ", \"ratio\": ", verdict.value)
          : "",
      limited ? ", \"limit_seconds\": " : ", \"limit\": ", promise.limit,
      ", \"verdict\": ", Quoted(absl::AsciiStrToLower(NameOf(verdict.judgement))), "}");
}

std::string ToJson(const std::string& name, const std::vector<double>& values) {
  return absl::StrCat("    ", Quoted(name), ": {\"median\": ", Median(values),
                      ", \"least\": ", *std::min_element(values.begin(), values.end()),
                      ", \"count\": ", values.size(), "}");
}

}  // namespace

void PrintTable(const Setting& setting, const std::vector<Verdict>& verdicts,
                const Samples& samples) {
  printf("%s\n", setting.label.c_str());
  printf("  %-48s %11s %11s %7s %7s  %s\n", "promise", "mrd", "against", "ratio", "limit",
         "verdict");
  for (const Verdict& verdict : verdicts) {
    const Promise& promise = *verdict.promise;
    const bool limited = promise.allowed.empty();
    const bool ratio = !limited && verdict.complete;
    printf("  %-48s %11s %11s %7s %7s  %s\n", promise.what.c_str(), Time(verdict.measured).c_str(),
           ratio ? Time(verdict.allowed).c_str() : "-",
           ratio ? absl::StrFormat("%.3f", verdict.value).c_str() : "-",
           limited ? Time(promise.limit).c_str() : absl::StrFormat("%.2f", promise.limit).c_str(),
           NameOf(verdict.judgement));
    if (ratio) printf("    against %s\n", Explain(verdict, samples).c_str());
  }
  fflush(stdout);
}

bool WriteJson(const std::string& path, const Setting& setting,
               const std::vector<Verdict>& verdicts, const Samples& samples) {
  utsname host;
  uname(&host);
  std::vector<std::string> promises;
  for (const Verdict& verdict : verdicts) promises.push_back(ToJson(verdict));
  std::vector<std::string> measured;
  for (const auto& [name, values] : samples.all()) measured.push_back(ToJson(name, values));
  std::ofstream file(path);
  file << "{\n  \"label\": " << Quoted(setting.label)
       << ",\n  \"device\": " << Quoted(setting.device)
       << ",\n  \"fabric\": " << Quoted(setting.fabric) << ",\n  \"version\": " << Quoted(kVersion)
       << ",\n  \"kernel\": " << Quoted(host.release)
       << ",\n  \"cpus\": " << sysconf(_SC_NPROCESSORS_ONLN)
       << ",\n  \"load_average\": " << LoadAverage() << ",\n  \"promises\": [\n"
       << absl::StrJoin(promises, ",\n") << "\n  ],\n  \"seconds\": {\n"
       << absl::StrJoin(measured, ",\n") << "\n  }\n}\n";
  file.close();
  return file.good();
}

}  // namespace mrd::bench
