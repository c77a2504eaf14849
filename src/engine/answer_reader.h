// What an AnswerReader (inferno/answer.h) must know.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "calls/format.h"
#include "calls/tool.h"
#include "inferno/answer.h"

namespace inferno {

struct AnswerForm {
  bool reasoning = true;                    // is taken apart
  std::string prompt_end = {};              // how the prompt ends: with the opening of the thinking, perhaps
  std::optional<calls::Format> calls = {};  // how calls are written; empty: none are looked for
  std::shared_ptr<const calls::ToolList> tools = nullptr;
  uint64_t id_seed = 0;  // of the ids of calls
};

[[nodiscard]] AnswerReader read_answer(AnswerForm form);

// Nine letters and digits: Mistral's templates take no others.
[[nodiscard]] std::string call_id(uint64_t seed, size_t index);

}  // namespace inferno
