// Many prompts in one run: a line of JSON in, a line of JSON out.
#pragma once

#include <string>

#include "inferno/llm.h"

namespace inferno::cli {

struct JsonLines {
  bool chat = false;          // a "prompt" is a question in the model's chat format; "messages" always are
  std::string chat_template;  // as in ChatOptions
  int32_t at_once = 16;       // lines read ahead of the one that is written next
};

// A line in is {"prompt": text} or {"messages": [...]} or {"ids": [...]}, with "n", "seed", "temp", "top_k", "top_p",
// "min_p", "stop", and one of "json_schema", "grammar", "regex" and "choice" of its own where they differ, and an "id"
// that comes back. Lines out are in the order of lines in; one that cannot be answered has an "error", and the exit
// code is 1 then.
void generate_lines(Llm& llm, const std::string& file, const GenerateOptions& options, const JsonLines& how);

}  // namespace inferno::cli
