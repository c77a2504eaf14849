// What the leader tells the other ranks: a kind and some numbers. Small messages, which those of steps are, go in one
// piece.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace inferno {

enum class RankMessage : int32_t {
  none,  // nothing came: the communicator failed
  load,  // make an engine, as described in bytes
  step,  // run a step
  end,   // the engine is gone
  quit,  // the program ends
};

// One of these on each rank.
class RankMessages {
 public:
  explicit RankMessages(Communicator& ranks) : ranks_(ranks) {}

  // On the leader. Allocates nothing.
  void send(RankMessage kind, std::span<const int32_t> words) noexcept;
  // On the others: waits as long as it takes. The words are valid until the next call.
  [[nodiscard]] RankMessage receive();
  [[nodiscard]] std::span<const int32_t> words() const { return words_; }

 private:
  static constexpr size_t kHead = 2;  // kind, number of words
  static constexpr size_t kFirst = 256;

  Communicator& ranks_;
  std::array<int32_t, kFirst> first_{};
  std::vector<int32_t> words_;
};

}  // namespace inferno
