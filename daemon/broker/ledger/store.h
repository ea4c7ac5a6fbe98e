// What keeps descriptors beyond this process: the service manager's store, as the broker sees it.
#ifndef MRD_DAEMON_BROKER_LEDGER_STORE_H_
#define MRD_DAEMON_BROKER_LEDGER_STORE_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace mrd::broker::ledger {

// Thread-safe. May block.
class Store {
 public:
  virtual ~Store() = default;
  // Keeps a duplicate of `fd` under this name, of at most 12 bytes, which no other has. Once it
  // returns OK the duplicate outlives this process. RESOURCE_EXHAUSTED: it is full; UNAVAILABLE.
  virtual absl::Status Add(const std::string& name, int fd) = 0;
  // Nothing where there is none of this name.
  virtual void Remove(const std::string& name) = 0;
  virtual size_t limit() const = 0;
  virtual size_t used() const = 0;
};

// A descriptor in the store, for as long as this lives.
class StoredFd {
 public:
  StoredFd() = default;
  // Adopts what is in it.
  StoredFd(Store& store, std::string name) : store_(&store), name_(std::move(name)) {}
  StoredFd(StoredFd&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)), name_(std::move(other.name_)) {}
  StoredFd& operator=(StoredFd&& other) noexcept {
    std::swap(store_, other.store_);
    std::swap(name_, other.name_);
    return *this;
  }
  ~StoredFd() {
    if (store_) store_->Remove(name_);
  }

  explicit operator bool() const { return store_ != nullptr; }
  const std::string& name() const { return name_; }

 private:
  Store* store_ = nullptr;
  std::string name_;
};

}  // namespace mrd::broker::ledger

#endif  // MRD_DAEMON_BROKER_LEDGER_STORE_H_
