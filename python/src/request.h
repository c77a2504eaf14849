// A request that Python waits for: its tokens, kept until they are asked for.
//
// The engine's thread never takes Python's lock (the GIL) for them: it appends to a list under a mutex of our own and
// wakes who waits, a thread by a condition variable or an event loop by a byte in a pipe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "inferno/llm.h"

namespace inferno::python {

struct Token {
  int32_t sample = 0;
  int32_t id = -1;  // -1: text without a token of its own
  std::string text = {};
  std::vector<TokenLogprob> logprobs = {};
};

class TokenQueue;

// Wakes one event loop for all of its requests: the tokens of a step are one byte in the pipe, and one call takes them
// all.
class Waker {
 public:
  // What a request has for its loop.
  struct Ready {
    uint64_t request = 0;
    std::vector<Token> tokens = {};
    bool ended = false;
  };

  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // Readable when take() would give something.
  [[nodiscard]] int descriptor() const { return pipe_[0]; }
  // Everything since the last call.
  [[nodiscard]] std::vector<Ready> take();
  // From any thread: that request has something, which tell() says.
  void add(uint64_t request, std::weak_ptr<TokenQueue> queue);
  void tell() noexcept;

 private:
  std::mutex mutex_;  // of the next two
  std::vector<std::pair<uint64_t, std::weak_ptr<TokenQueue>>> ready_;
  bool told_ = false;  // there is a byte in the pipe
  int pipe_[2] = {-1, -1};
};

// Of a model: the wakers that are told after the step. Used on the thread that computes alone.
class Outbox {
 public:
  void add(const std::shared_ptr<Waker>& waker);
  void send() noexcept;

 private:
  std::vector<std::shared_ptr<Waker>> wakers_;
};

// What the engine's thread and Python share.
class TokenQueue : public std::enable_shared_from_this<TokenQueue> {
 public:
  explicit TokenQueue(std::shared_ptr<Outbox> outbox) : outbox_(std::move(outbox)) {}
  TokenQueue(const TokenQueue&) = delete;
  TokenQueue& operator=(const TokenQueue&) = delete;

  // On the thread that computes.
  void add(const TokenEvent& event);
  void end();
  // Everything since the last call.
  [[nodiscard]] std::vector<Token> take();
  // The same for a waker, and whether that was all; false: it is not that one's any more.
  [[nodiscard]] bool take_for(const Waker& waker, Waker::Ready& into);
  [[nodiscard]] bool has_ended() const;
  // False: nothing happened for so long.
  [[nodiscard]] bool wait(std::chrono::milliseconds time, bool until_end) const;
  // From now on that waker is told `request` at the end, and with `each` also when there are tokens to take, once until
  // they were taken.
  void notify(std::shared_ptr<Waker> waker, uint64_t request, bool each);

 private:
  void wake_after_step();
  // Whether the waker is to be told.
  bool add_to_waker();

  std::shared_ptr<Outbox> outbox_;
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;   // a token, or the end
  mutable std::condition_variable finished_;  // the end: who waits for that sleeps through the tokens
  std::vector<Token> tokens_;
  bool ended_ = false;
  std::shared_ptr<Waker> waker_;
  uint64_t request_ = 0;
  bool each_ = true;
  bool told_ = false;
};

class Request {
 public:
  // `llm`: computes the request where somebody waits for it; null: a thread of the library's own does.
  Request(std::shared_ptr<TokenQueue> queue, Generation generation, std::weak_ptr<Llm> llm);

  // All below throw an Error in a child of fork().
  // Waits for tokens; an empty list at the end. Runs Python's signal handlers meanwhile: what they raise cancels.
  [[nodiscard]] std::vector<Token> next();
  [[nodiscard]] bool has_ended() const;
  void notify(std::shared_ptr<Waker> waker, uint64_t request, bool each);
  [[nodiscard]] GenerateResult result();
  void cancel() const noexcept { generation_.cancel(); }
  // cancel(), and the step that ends it where no other thread would make it.
  void leave() noexcept;

 private:
  void check_process() const;
  void wait(bool until_end);
  // Computes a step, or waits for somebody else's: whether the wait is over.
  [[nodiscard]] bool wait_once(bool until_end);

  std::shared_ptr<TokenQueue> queue_;
  Generation generation_;
  std::weak_ptr<Llm> llm_;
  pid_t process_;
};

}  // namespace inferno::python
