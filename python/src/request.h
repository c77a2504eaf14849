// A request that Python waits for: its tokens, kept until they are asked for.
//
// The engine's thread never takes Python's lock (the GIL) for them: it appends to a list under a mutex of our own and
// wakes who waits, a thread by a condition variable or an event loop by a number in a pipe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "inferno/llm.h"

namespace inferno::python {

struct Token {
  int32_t sample = 0;
  int32_t id = -1;  // -1: text without a token of its own
  std::string text = {};
  std::vector<TokenLogprob> logprobs = {};
};

// Says to one event loop which of its requests have something to take.
class Waker {
 public:
  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // Readable when take() would give something.
  [[nodiscard]] int descriptor() const { return pipe_[0]; }
  // The requests since the last call. Nothing: so many that some had no room, any of them may have something.
  [[nodiscard]] std::optional<std::vector<uint64_t>> take();
  // From any thread. False: there was no room.
  bool wake(uint64_t request) noexcept;

 private:
  static constexpr size_t kMost = 4096;  // numbers that take() reads, and half of what a pipe holds
  int pipe_[2] = {-1, -1};
};

// What the engine's thread and Python share.
class TokenQueue {
 public:
  TokenQueue() = default;
  TokenQueue(const TokenQueue&) = delete;
  TokenQueue& operator=(const TokenQueue&) = delete;

  void add(const TokenEvent& event);
  void end() noexcept;
  // Everything since the last call.
  [[nodiscard]] std::vector<Token> take();
  [[nodiscard]] bool has_ended() const;
  // False: nothing happened for so long.
  [[nodiscard]] bool wait(std::chrono::milliseconds time, bool until_end) const;
  // From now on the waker is told `request` when there is something to take, once until it was taken, and at the end.
  void notify(std::shared_ptr<Waker> waker, uint64_t request);

 private:
  void wake() noexcept;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Token> tokens_;
  bool ended_ = false;
  std::shared_ptr<Waker> waker_;
  uint64_t request_ = 0;
  bool told_ = false;
};

class Request {
 public:
  Request(std::shared_ptr<TokenQueue> queue, Generation generation);

  // All below throw an Error in a child of fork().
  // Waits for tokens; an empty list at the end. Runs Python's signal handlers meanwhile: what they raise cancels.
  [[nodiscard]] std::vector<Token> next();
  [[nodiscard]] std::vector<Token> take();
  [[nodiscard]] bool has_ended() const;
  void notify(std::shared_ptr<Waker> waker, uint64_t request);
  [[nodiscard]] GenerateResult result();
  void cancel() const noexcept { generation_.cancel(); }

 private:
  void check_process() const;
  void wait(bool until_end);

  std::shared_ptr<TokenQueue> queue_;
  Generation generation_;
  pid_t process_;
};

}  // namespace inferno::python
