// A short directory of the test's own: a socket's path has 107 bytes.
#ifndef MRD_TESTS_HOST_TEMPORARY_DIR_H_
#define MRD_TESTS_HOST_TEMPORARY_DIR_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace mrd::host {

class TemporaryDir {
 public:
  TemporaryDir() {
    char dir[] = "/tmp/mrd-XXXXXX";
    if (mkdtemp(dir) == nullptr) abort();
    path_ = dir;
  }
  ~TemporaryDir() { std::filesystem::remove_all(path_); }

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  size_t files() const { return std::distance(std::filesystem::directory_iterator(path_), {}); }

 private:
  std::string path_;
};

inline std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace mrd::host

#endif  // MRD_TESTS_HOST_TEMPORARY_DIR_H_
