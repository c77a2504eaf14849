// The body of a request on its way to a worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace inferno::serve {

// Its bytes count until it is gone. A large one leaves much memory behind, of what was made of it too: that goes back
// to the system, which an allocator would not do by itself.
class WaitingBody {
 public:
  WaitingBody(std::string text, std::atomic<uint64_t>& sum);
  ~WaitingBody();
  WaitingBody(const WaitingBody&) = delete;
  WaitingBody& operator=(const WaitingBody&) = delete;

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::atomic<uint64_t>& sum_;
};

}  // namespace inferno::serve
