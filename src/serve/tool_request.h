// What a request says about tools.
#pragma once

#include <memory>
#include <string>

#include "calls/tool.h"

namespace inferno::serve {

inline constexpr size_t kMaxTools = 512;
inline constexpr size_t kMaxToolName = 128;

struct ToolRequest {
  std::shared_ptr<const calls::ToolList> tools;  // null: there are none, or none may be called
  std::string json;                              // the same for a chat template, in OpenAI's form
  bool required = false;                         // the answer is a call
  std::string name;                              // of this tool; empty: of any
  bool parallel = true;                          // of several, if the model likes

  [[nodiscard]] bool empty() const { return tools == nullptr; }
};

}  // namespace inferno::serve
