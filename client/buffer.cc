#include "client/buffer.h"

#include <utility>

#include "client/buffer_state.h"

namespace mrd {

Buffer::Buffer(std::shared_ptr<internal::BufferState> state) : state_(std::move(state)) {}
Buffer::Buffer(Buffer&&) noexcept = default;
Buffer& Buffer::operator=(Buffer&&) noexcept = default;
Buffer::~Buffer() = default;

void* Buffer::data() const { return state_->memory().data(); }
uint64_t Buffer::size() const { return state_->size(); }
uint64_t Buffer::mapped_size() const { return state_->memory().size(); }
uint64_t Buffer::page_size() const { return state_->memory().page_size(); }
int Buffer::fd() const { return state_->memory().fd(); }
absl::Status Buffer::Release() const { return state_->Release(); }

}  // namespace mrd
