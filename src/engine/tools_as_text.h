// Tools in a conversation whose chat template knows nothing of them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "inferno/types.h"

namespace inferno {

// The same conversation in plain messages: the tools and how to call them in a system message, earlier calls in the
// assistant's words, results in the user's. Calls are in the most common form, <tool_call>{...}</tool_call>.
[[nodiscard]] std::vector<ChatMessage> tools_as_text(std::span<const ChatMessage> messages,
                                                     const nlohmann::ordered_json& tools);

}  // namespace inferno
