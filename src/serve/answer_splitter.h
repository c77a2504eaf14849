// Takes an answer apart as its text comes: the model's thinking, what it says, and the tools it calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calls/parser.h"
#include "inferno/types.h"
#include "serve/thinking.h"

namespace inferno::serve {

// A piece of a call: the first one of each has its id and name, all others more of its arguments.
struct CallDelta {
  size_t index = 0;  // of the calls of its answer
  std::string id = {};
  std::string name = {};
  std::string arguments = {};
};

struct AnswerParts {
  std::string thinking = {};
  std::string content = {};
  std::vector<CallDelta> calls = {};
};

struct SplitterSettings {
  bool thinking = false;                    // is taken apart
  bool begins_thinking = false;             // the prompt ended with the opening tag
  std::optional<calls::Format> calls = {};  // how calls are written; empty: none are looked for
  std::shared_ptr<const calls::ToolList> tools = nullptr;
  uint64_t id_seed = 0;  // of the ids of calls
};

class AnswerSplitter {
 public:
  explicit AnswerSplitter(SplitterSettings settings);

  // What is certain of the text so far and was not given out yet; the rest is held back until it is.
  [[nodiscard]] AnswerParts push(std::string_view text);
  // The end: what was held back.
  [[nodiscard]] AnswerParts finish();
  // As new, for the same answer once more: ids of calls are the same again.
  void restart();

 private:
  void add(const std::vector<calls::Event>& events, AnswerParts& parts);
  void add(const ThinkingSplitter::Parts& split, AnswerParts& parts);

  SplitterSettings settings_;
  ThinkingSplitter thinking_;
  std::optional<calls::Parser> parser_;
  size_t calls_ = 0;
};

// Puts the pieces of calls together; `made` are those so far.
void join_calls(std::vector<CallDelta> pieces, std::vector<ToolCall>& made);
// Nine letters and digits: Mistral's templates take no others.
[[nodiscard]] std::string call_id(uint64_t seed, size_t index);

}  // namespace inferno::serve
