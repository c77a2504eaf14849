// An answer of a conversation taken apart as its text comes: what the model thinks, what it says, the tools it calls.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calls/parser.h"
#include "engine/reasoning.h"

namespace inferno::python {

// A piece of a call: the first one of each has its name, all others more of its arguments.
struct CallPiece {
  size_t index = 0;
  std::string name = {};
  std::string arguments = {};
};

struct AnswerPiece {
  std::string reasoning = {};
  std::string content = {};
  std::vector<CallPiece> calls = {};
};

class AnswerReader {
 public:
  // `prompt` ends where the answer begins; `chat_template` shows how the model writes calls; `tools` is the JSON of
  // ChatOptions: empty, no calls are looked for.
  AnswerReader(std::string_view prompt, std::string_view chat_template, const std::string& tools);
  AnswerReader(const AnswerReader&) = delete;
  AnswerReader& operator=(const AnswerReader&) = delete;

  // What is certain of the text so far and was not given out yet; the rest is held back until it is.
  [[nodiscard]] AnswerPiece push(std::string_view text);
  // The end: what was held back. Nothing may be pushed after it.
  [[nodiscard]] AnswerPiece finish();

 private:
  void add(const std::vector<calls::Event>& events);

  AnswerPiece piece_;
  size_t calls_ = 0;
  std::optional<calls::Parser> parser_;
  ReasoningSplitter splitter_;  // gives to those above
};

}  // namespace inferno::python
