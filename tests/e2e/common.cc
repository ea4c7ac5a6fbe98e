#include "tests/e2e/common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <sstream>
#include <thread>

namespace mrd::e2e {

bool WaitUntil(milliseconds within, const std::function<bool()>& holds) {
  const auto deadline = Clock::now() + within;
  while (!holds()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

void Require(bool holds, const std::string& what) {
  if (holds) return;
  const int error = errno;
  fprintf(stderr, "the test cannot go on: %s (errno %d, %s)\n", what.c_str(), error,
          strerror(error));
  abort();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace mrd::e2e
