// Fields about tools in the words of several APIs: what may be called, what must be, and what was.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/tool_request.h"
#include "inferno/types.h"
#include "serve/json_fields.h"

namespace inferno::serve {

// tools, tool_choice and parallel_tool_calls (Anthropic: disable_parallel_tool_use). `body` is the text of the fields:
// the order of a schema's properties is only there.
[[nodiscard]] ToolRequest tools_of(const Fields& fields, std::string_view body);

// The calls of an earlier answer: `tool_calls` of a message.
[[nodiscard]] std::vector<ToolCall> tool_calls_of(const Fields& message);
// Arguments that were sent as objects, in the order of their members in `body`, whose field `messages` these are.
void order_arguments(std::string_view body, std::vector<ChatMessage>& messages);
// JSON arguments as text: a string as it is, an object as it reads.
[[nodiscard]] std::string arguments_text(const Json& arguments);

}  // namespace inferno::serve
