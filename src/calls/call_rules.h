// A grammar of answers that may call tools: free text, and in it calls whose names are those of the tools and whose
// arguments fit the tools' schemas.
//
// The text is free until a call begins, as the format has it (docs/tools.md); from there on it is the call's, and then
// free again. Where arguments are JSON they fit the schema exactly. In tags, Python and Gemma's literals the names of
// arguments, which of them are required, and values that are no text of the model's own (numbers, booleans, choices)
// do; what is nested is any value.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "calls/format.h"
#include "calls/tool.h"
#include "grammar/limits.h"
#include "grammar/rules.h"

namespace inferno::calls {

struct ThinkingMarkers {
  std::string_view open, close;
};

struct CallForm {
  Format format = Format::hermes;
  std::shared_ptr<const ToolList> tools = nullptr;
  bool required = false;                       // the answer is one call and nothing else
  std::string name = {};                       // required: of this tool; empty: of any
  bool parallel = true;                        // several calls are allowed
  std::vector<ThinkingMarkers> thinking = {};  // of a block at the beginning, in which nothing is a call
  int begins_in = -1;                          // the answer begins within that block
  bool any_arguments = false;                  // schemas do not count: arguments are any object

  [[nodiscard]] std::string key() const;  // equal: the same grammar
};

// The format in which calls can be required: their own where arguments are JSON, llama_json elsewhere.
[[nodiscard]] Format required_format(Format format);

// A schema that cannot be enforced is an Error, but of a tool that is not strict: its arguments are any object then,
// and `relaxed` gets the reason.
[[nodiscard]] grammar::Rules call_rules(const CallForm& form, const grammar::Limits& limits,
                                        std::vector<std::string>& relaxed);

}  // namespace inferno::calls
