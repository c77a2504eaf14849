// Text that is free but for what begins a call: a machine that follows it byte by byte, whatever it says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "grammar/machine.h"

namespace inferno::calls {

inline constexpr size_t kNoPhase = SIZE_MAX;

// Where a text leaves a phase: after these bytes.
struct PhaseExit {
  std::string text;
  size_t phase = 0;                          // that follows; kNoPhase: the text never has these bytes
  std::optional<grammar::RuleId> call = {};  // to be read before it
};

// A part of an answer. Control tokens begin with a byte of their own (TokenTrie), which begins nothing else: a marker
// is found whether it is a token or spelt out.
struct TextPhase {
  std::vector<PhaseExit> exits = {};
  bool at_beginning = false;  // exits count at the beginning alone, after space; anything else is the phase `otherwise`
  size_t otherwise = 0;       // kNoPhase: nothing else may come
  bool ends = false;          // nothing may come but the end
  bool may_end = true;
};

[[nodiscard]] grammar::Machine free_text(const std::vector<TextPhase>& phases, size_t start = 0);

}  // namespace inferno::calls
