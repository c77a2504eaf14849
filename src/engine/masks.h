// The masks of one request's samples, found without ever holding up the thread that steps.
//
// ready() does what is quick: in bounded time, without allocating, locking or a system call, which is nearly every
// mask. A mask that takes longer is handed to the worker, and the sample sits out steps until it is there. A grammar
// belongs to one of both threads at a time, whoever sets its `busy`; samples that find it busy sit out a step, too.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <thread>

#include "grammar/matcher.h"

namespace inferno {

// A grammar that requests share.
struct SharedGrammar {
  SharedGrammar(grammar::Rules rules, std::shared_ptr<const grammar::TokenTrie> trie, const grammar::Limits& limits)
      : grammar(std::move(rules), std::move(trie), limits) {}
  grammar::Grammar grammar;
  std::atomic<bool> busy{false};
};

class MaskWorker;

class Masks : public std::enable_shared_from_this<Masks> {
 public:
  // Texts have up to `longest` tokens, or memory is allocated for more. The worker outlives all calls of ready().
  Masks(std::shared_ptr<SharedGrammar> grammar, int32_t samples, size_t longest, MaskWorker& worker);

  // Whether the mask after these tokens is there. On the thread that steps, as the next two. Where the last `guessed`
  // of them are only guesses, nobody waits for it: false means no more than that it is not found quickly.
  [[nodiscard]] bool ready(int32_t sample, std::span<const int32_t> generated, int32_t guessed = 0);
  // Tokens that are likely to follow because their bytes must; returns how many there are in `out`.
  [[nodiscard]] int32_t forced(int32_t sample, std::span<const int32_t> generated, std::span<int32_t> out);
  // Where it is, empty where it has all tokens; what went wrong with it is an Error. Waits where it is not.
  [[nodiscard]] std::span<const uint32_t> mask(int32_t sample, std::span<const int32_t> generated);

 private:
  friend class MaskWorker;
  struct Sample {
    explicit Sample(grammar::Grammar& grammar) : matcher(grammar) {}
    grammar::Matcher matcher;
    bool has_mask = false;           // of the matcher's text
    std::atomic<bool> waits{false};  // for the worker
    std::exception_ptr error;
  };
  // Takes the grammar if it is nobody's; gives it back.
  [[nodiscard]] bool take() { return !grammar_->busy.exchange(true, std::memory_order_acquire); }
  void give_back() { grammar_->busy.store(false, std::memory_order_release); }
  static void set_text(Sample& s, std::span<const int32_t> text);
  [[nodiscard]] bool find_for_guess(Sample& s, std::span<const int32_t> text);
  // False: too many wait already.
  [[nodiscard]] bool post(Sample& s, int32_t sample);
  // On the worker; gives the grammar back.
  void find(int32_t sample) noexcept;

  std::shared_ptr<SharedGrammar> grammar_;
  std::deque<Sample> samples_;
  MaskWorker& worker_;
};

// A thread for masks that take long. One thread posts.
class MaskWorker {
 public:
  MaskWorker() = default;
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  // Before the first post(); may be called again, from any thread but not by two at once.
  void start();
  // False: too many wait. Wakes the thread.
  [[nodiscard]] bool post(std::shared_ptr<Masks> masks, int32_t sample);

 private:
  struct Job {
    std::shared_ptr<Masks> masks;
    int32_t sample = 0;
  };
  void work() noexcept;

  static constexpr uint32_t kJobs = 256;
  std::array<Job, kJobs> jobs_;  // [posted % kJobs], between done_ and posted_
  std::atomic<uint32_t> posted_{0};
  std::atomic<uint32_t> done_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace inferno
