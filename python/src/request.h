// A request that Python waits for: its tokens, kept until they are asked for.
//
// The engine's thread never takes Python's lock (the GIL) for them: it appends to a list under a mutex of our own and
// wakes who waits, a thread by a condition variable or an event loop by a byte in a pipe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
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

// What the engine's thread and Python share.
class TokenQueue {
 public:
  TokenQueue() = default;
  ~TokenQueue();
  TokenQueue(const TokenQueue&) = delete;
  TokenQueue& operator=(const TokenQueue&) = delete;

  void add(const TokenEvent& event);
  void end() noexcept;
  // Everything since the last call.
  [[nodiscard]] std::vector<Token> take();
  [[nodiscard]] bool has_ended() const;
  // False: nothing happened for so long.
  [[nodiscard]] bool wait(std::chrono::milliseconds time, bool until_end) const;
  // Becomes readable when there is something to take, or at the end; take() empties it.
  [[nodiscard]] int descriptor();

 private:
  void wake() noexcept;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Token> tokens_;
  bool ended_ = false;
  bool signalled_ = false;  // a byte is in the pipe
  int pipe_[2] = {-1, -1};
};

class Request {
 public:
  Request(std::shared_ptr<TokenQueue> queue, Generation generation);

  // All below throw an Error in a child of fork().
  // Waits for tokens; an empty list at the end. Runs Python's signal handlers meanwhile: what they raise cancels.
  [[nodiscard]] std::vector<Token> next();
  [[nodiscard]] std::vector<Token> take();
  [[nodiscard]] bool has_ended() const;
  [[nodiscard]] int descriptor();
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
