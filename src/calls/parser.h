// Finds calls of tools in an answer, as its text comes.
//
//   Parser parser(detect_format(chat_template), tools);
//   for (const Event& event : parser.push("<tool_call>{\"name\": \"f\", ")) ...
//   for (const Event& event : parser.finish()) ...
//
// What the events say does not depend on where the text was cut, and takes time linear in its length. A call begins
// where its name and the beginning of its arguments are known; what turns out to be none before that is text, as it is.
// After that an error ends the call and what follows is text; the end of the text ends it, too. Arguments are given on
// as they come where the model writes JSON; tags, Python and Gemma's literals are rewritten as JSON.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "calls/events.h"
#include "calls/format.h"
#include "calls/tool.h"

namespace inferno::calls {

class Reader;

class Parser {
 public:
  // `tools` tells which arguments are strings, where the format does not; may be null.
  explicit Parser(Format format, std::shared_ptr<const ToolList> tools = nullptr);
  ~Parser();
  Parser(Parser&& other) noexcept;
  Parser& operator=(Parser&& other) noexcept;

  [[nodiscard]] std::vector<Event> push(std::string_view text);
  // The end of the text. Nothing may be pushed after it.
  [[nodiscard]] std::vector<Event> finish();

 private:
  std::unique_ptr<Reader> reader_;
};

}  // namespace inferno::calls
