// How many plain characters (TokenTrie::kPlainKinds) can be read from each state of a program, whatever they are.
//
// Found from the machines alone, so it holds for every stack: where 32 of any kind may come, all plain tokens may, and
// where a string may have only five more characters, those of up to five. Immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/program.h"

namespace inferno::grammar {

class PlainRuns {
 public:
  explicit PlainRuns(const Program& program);

  // The state takes any plain text and stays as it is, and its rule does not end meanwhile.
  [[nodiscard]] bool loops(uint32_t state) const { return (runs_[state] & kLoops) != 0; }
  // The plain tokens that may follow are those of up to so many characters; negative: that is not known.
  [[nodiscard]] int characters(std::span<const Item> items) const;

 private:
  static constexpr uint16_t kLength = 0xFF;    // characters that may come, at most TokenTrie::kPlainBytes
  static constexpr uint16_t kIsExact = 0x100;  // and no more than these
  static constexpr uint16_t kLoops = 0x200;
  static constexpr uint16_t kOneChar = 0x400;  // where a rule of one character begins, which counts with its callers

  std::vector<uint16_t> runs_;  // (states)
};

}  // namespace inferno::grammar
