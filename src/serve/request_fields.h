// Fields that several APIs have in common, from JSON to what the engine takes. What is wrong is an ApiError that names
// the field.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "inferno/types.h"
#include "serve/completion_request.h"
#include "serve/json_fields.h"

namespace inferno::serve {

// The name of the model that is asked for; empty: any.
[[nodiscard]] std::string model_of(const Fields& fields);
// Suffixes and what tools were before `tools` are 501.
void refuse_unsupported(const Fields& fields);

// Temperature, top_p and the like; what is missing is as in `defaults`. A seed below 0 counts as missing where
// `negative_seed_is_random`.
[[nodiscard]] SamplingSettings sampling_of(const Fields& fields, SamplingSettings defaults,
                                           bool negative_seed_is_random = false);
// A string or an array of strings.
[[nodiscard]] std::vector<std::string> stops_of(const Fields& fields, const char* name, const CompletionLimits& limits);
// {"id": bias} or [[id, bias or false]]. Texts in the place of ids go to `texts`; null: they are an ApiError.
[[nodiscard]] std::vector<LogitBias> bias_of(const Fields& fields, std::vector<TextBias>* texts = nullptr);
[[nodiscard]] std::vector<int32_t> ids_of(const Json& array, const std::string& field);

// A string, or an array of parts of which only texts can be read; their types are among `text_types`.
[[nodiscard]] std::string content_of(const Json& content, const std::string& path,
                                     std::span<const std::string_view> text_types);
// The texts under `field` of the parts of that type, each on lines of its own; of what has no parts, nothing.
[[nodiscard]] std::string text_of_parts(const Json& parts, std::string_view type, const char* field,
                                        const std::string& path);
// More than a template should be asked to render are a 400.
void check_message_count(const Json& messages, const char* name);
// The array of messages under `name`, with roles system, developer, user, assistant and tool.
[[nodiscard]] std::vector<ChatMessage> messages_of(const Fields& fields, const char* name,
                                                   std::span<const std::string_view> text_types);
[[nodiscard]] ChatMessage message_of(const Json& message, const std::string& path,
                                     std::span<const std::string_view> text_types);

inline constexpr std::string_view kTextParts[] = {"text"};
inline constexpr std::string_view kResponseParts[] = {"input_text", "output_text", "text"};

// A conversation as /v1/chat/completions has it, with the fields that shape its prompt.
[[nodiscard]] Prompt chat_of(const Fields& fields, const CompletionLimits& limits);

}  // namespace inferno::serve
