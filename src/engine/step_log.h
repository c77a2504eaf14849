// The last steps that ran, for whoever wants to see what the engine does.
//
// One thread adds, any thread reads; adding takes no lock and no memory. A record that is overwritten while it is read
// is left out.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace inferno {

struct StepRecord {
  struct Member {
    uint64_t tag = 0;      // Request::tag
    int32_t tokens = 0;    // in this step
    int32_t position = 0;  // of the first of them
    int32_t left = 0;      // tokens to compute, those of this step included
    int32_t unused = 0;
  };

  int64_t number = 0;
  double end_seconds = 0;       // since the engine was made
  double seconds = 0;           // it took
  double expected_seconds = 0;  // by the cost model
  double target_seconds = 0;    // it was made for
  int32_t sequences = 0;
  int32_t decodes = 0;        // tokens of sequences that decode, those guessed ahead included
  int32_t prompt_tokens = 0;  // of prompts
  int32_t waiting = 0;        // sequences
  int32_t members = 0;        // of `member`; there may be more sequences than places
  int32_t unused = 0;
  std::array<Member, 16> member = {};
};

class StepLog {
 public:
  static constexpr size_t kSteps = 256;

  void add(const StepRecord& record) noexcept {
    Slot& slot = slots_[static_cast<size_t>(added_ % kSteps)];
    const auto words = std::bit_cast<Words>(record);
    slot.version.store(2 * added_ + 1, std::memory_order_relaxed);
    // Who reads one of these words also sees that the version has changed.
    for (size_t i = 0; i < kWords; ++i) slot.words[i].store(words[i], std::memory_order_release);
    slot.version.store(2 * added_ + 2, std::memory_order_release);
    ++added_;
  }

  // At most `most` of the latest, oldest first.
  [[nodiscard]] std::vector<StepRecord> last(size_t most) const {
    std::vector<StepRecord> records;
    for (const Slot& slot : slots_) {
      const uint64_t version = slot.version.load(std::memory_order_acquire);
      if (version == 0 || version % 2 == 1) continue;
      Words words;
      for (size_t i = 0; i < kWords; ++i) words[i] = slot.words[i].load(std::memory_order_acquire);
      if (slot.version.load(std::memory_order_relaxed) != version) continue;
      records.push_back(std::bit_cast<StepRecord>(words));
    }
    std::ranges::sort(records, {}, &StepRecord::number);
    if (records.size() > most) records.erase(records.begin(), records.end() - static_cast<ptrdiff_t>(most));
    return records;
  }

 private:
  static_assert(std::is_trivially_copyable_v<StepRecord> && sizeof(StepRecord) % sizeof(uint64_t) == 0);
  static constexpr size_t kWords = sizeof(StepRecord) / sizeof(uint64_t);
  using Words = std::array<uint64_t, kWords>;

  struct Slot {
    std::atomic<uint64_t> version{0};  // odd: being written
    std::array<std::atomic<uint64_t>, kWords> words{};
  };

  std::array<Slot, kSteps> slots_{};
  uint64_t added_ = 0;
};

}  // namespace inferno
