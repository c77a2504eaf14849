#include "engine/masks.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/block_signals.h"
#include "base/error.h"
#include "base/platform.h"

namespace inferno {

Masks::Masks(std::shared_ptr<SharedGrammar> grammar, int32_t samples, size_t longest, MaskWorker& worker)
    : grammar_(std::move(grammar)), worker_(worker) {
  for (int32_t i = 0; i < samples; ++i) samples_.emplace_back(grammar_->grammar).matcher.reserve(longest);
}

void Masks::set_text(Sample& s, std::span<const int32_t> text) {
  if (std::ranges::equal(s.matcher.tokens(), text)) return;
  s.matcher.set_text(text);
  s.has_mask = false;
}

bool Masks::ready(int32_t sample, std::span<const int32_t> generated, int32_t guessed) {
  Sample& s = samples_[static_cast<size_t>(sample)];
  if (s.waits.load(std::memory_order_acquire)) return false;
  if (s.error || (s.has_mask && std::ranges::equal(s.matcher.tokens(), generated))) return true;
  if (!take()) return false;
  if (guessed > 0) return find_for_guess(s, generated);
  try {
    set_text(s, generated);
    s.has_mask = s.matcher.find_mask_quickly();
    // With it the grammar goes to the worker, and is not ours to give back.
    if (!s.has_mask && post(s, sample)) return false;
  } catch (...) {
    s.error = std::current_exception();
  }
  give_back();
  return s.has_mask || s.error;
}

// What goes wrong with a text that nobody may ever have is nobody's error.
bool Masks::find_for_guess(Sample& s, std::span<const int32_t> text) {
  try {
    set_text(s, text);
    s.has_mask = s.matcher.find_mask_quickly();
  } catch (...) {
    s.has_mask = false;
  }
  give_back();
  return s.has_mask;
}

int32_t Masks::forced(int32_t sample, std::span<const int32_t> generated, std::span<int32_t> out) {
  Sample& s = samples_[static_cast<size_t>(sample)];
  if (s.waits.load(std::memory_order_acquire) || s.error || !take()) return 0;
  int32_t count = 0;
  try {
    set_text(s, generated);
    count = s.matcher.guess_forced(out);
  } catch (...) {
    count = 0;  // the mask will tell
  }
  give_back();
  return count;
}

bool Masks::post(Sample& s, int32_t sample) {
  s.waits.store(true, std::memory_order_relaxed);
  if (worker_.post(shared_from_this(), sample)) return true;
  s.waits.store(false, std::memory_order_relaxed);
  return false;
}

std::span<const uint32_t> Masks::mask(int32_t sample, std::span<const int32_t> generated) {
  while (!ready(sample, generated)) std::this_thread::yield();
  Sample& s = samples_[static_cast<size_t>(sample)];
  if (s.error) std::rethrow_exception(s.error);
  if (s.matcher.found_all()) return {};
  return s.matcher.found_mask();
}

void Masks::find(int32_t sample) noexcept {
  Sample& s = samples_[static_cast<size_t>(sample)];
  try {
    (void)s.matcher.mask();
    s.has_mask = true;
    grammar_->grammar.make_room();
  } catch (...) {
    s.error = std::current_exception();
  }
  give_back();
  s.waits.store(false, std::memory_order_release);
}

MaskWorker::~MaskWorker() {
  if (!thread_.joinable()) return;
  ends_.store(true, std::memory_order_relaxed);
  posted_.fetch_add(1, std::memory_order_release);  // to wake it; nothing is looked at any more
  posted_.notify_one();
  thread_.join();
}

void MaskWorker::start() {
  if (thread_.joinable()) return;
  const BlockSignals block;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    fail("no thread can be made to find masks on: {}", error.what());
  }
}

bool MaskWorker::post(std::shared_ptr<Masks> masks, int32_t sample) {
  const uint32_t at = posted_.load(std::memory_order_relaxed);
  if (at - done_.load(std::memory_order_acquire) == kJobs) return false;
  jobs_[at % kJobs] = {std::move(masks), sample};
  posted_.store(at + 1, std::memory_order_release);
  posted_.notify_one();
  return true;
}

void MaskWorker::work() noexcept {
  platform::name_this_thread("inferno-masks");
  for (uint32_t next = 0;; ++next) {
    posted_.wait(next, std::memory_order_acquire);
    if (ends_.load(std::memory_order_relaxed)) return;
    Job job = std::exchange(jobs_[next % kJobs], {});
    done_.store(next + 1, std::memory_order_release);
    job.masks->find(job.sample);
  }
}

}  // namespace inferno
