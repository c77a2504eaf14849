#include "calls/format.h"

#include <algorithm>
#include <array>

namespace inferno::calls {
namespace {

constexpr TagNames kFunctionTags = {.call_open = "<function=",
                                    .name_end = ">",
                                    .call_close = "</function>",
                                    .key_open = "<parameter=",
                                    .key_end = ">",
                                    .value_open = "",
                                    .value_close = "</parameter>"};
constexpr TagNames kInvokeTags = {.call_open = "<invoke name=\"",
                                  .name_end = "\">",
                                  .call_close = "</invoke>",
                                  .key_open = "<parameter name=\"",
                                  .key_end = "\">",
                                  .value_open = "",
                                  .value_close = "</parameter>"};
// The call has no tag of its own: its name follows <tool_call>, which also ends it.
constexpr TagNames kArgTags = {.call_open = "",
                               .name_end = "",
                               .call_close = "",
                               .key_open = "<arg_key>",
                               .key_end = "</arg_key>",
                               .value_open = "<arg_value>",
                               .value_close = "</arg_value>"};

// In the order of Format.
constexpr std::array kSpecs = {
    FormatSpec{.format = Format::hermes,
               .name = "hermes",
               .syntax = Syntax::object,
               .open = "<tool_call>",
               .close = "</tool_call>"},
    FormatSpec{.format = Format::qwen_tags,
               .name = "qwen_tags",
               .syntax = Syntax::tags,
               .open = "<tool_call>",
               .close = "</tool_call>",
               .tags = kFunctionTags},
    FormatSpec{.format = Format::seed_tags,
               .name = "seed_tags",
               .syntax = Syntax::tags,
               .open = "<seed:tool_call>",
               .close = "</seed:tool_call>",
               .tags = kFunctionTags},
    FormatSpec{.format = Format::minimax_tags,
               .name = "minimax_tags",
               .syntax = Syntax::tags,
               .open = "<minimax:tool_call>",
               .close = "</minimax:tool_call>",
               .tags = kInvokeTags},
    FormatSpec{.format = Format::glm_tags,
               .name = "glm_tags",
               .syntax = Syntax::tags,
               .open = "<tool_call>",
               .close = "</tool_call>",
               .tags = kArgTags},
    FormatSpec{.format = Format::llama_json,
               .name = "llama_json",
               .syntax = Syntax::bare_objects,
               .open = "<|python_tag|>",
               .close = ""},
    FormatSpec{.format = Format::llama_pythonic,
               .name = "llama_pythonic",
               .syntax = Syntax::pythonic,
               .open = "",
               .close = ""},
    FormatSpec{.format = Format::lfm_pythonic,
               .name = "lfm_pythonic",
               .syntax = Syntax::pythonic,
               .open = "<|tool_call_start|>",
               .close = "<|tool_call_end|>"},
    FormatSpec{.format = Format::mistral_list,
               .name = "mistral_list",
               .syntax = Syntax::list,
               .open = "[TOOL_CALLS]",
               .close = "",
               .name_end = "[ARGS]"},
    FormatSpec{.format = Format::mistral_named,
               .name = "mistral_named",
               .syntax = Syntax::named,
               .open = "[TOOL_CALLS]",
               .close = "",
               .name_end = "[ARGS]"},
    FormatSpec{.format = Format::granite_list,
               .name = "granite_list",
               .syntax = Syntax::list,
               .open = "<|tool_call|>",
               .close = "<|/tool_call|>"},
    FormatSpec{.format = Format::harmony, .name = "harmony", .syntax = Syntax::harmony, .open = "", .close = ""},
    FormatSpec{.format = Format::deepseek_json,
               .name = "deepseek_json",
               .syntax = Syntax::named,
               .open = "<｜tool▁call▁begin｜>",
               .close = "<｜tool▁call▁end｜>",
               .name_end = "<｜tool▁sep｜>",
               .group_open = "<｜tool▁calls▁begin｜>",
               .group_close = "<｜tool▁calls▁end｜>"},
    FormatSpec{.format = Format::deepseek_named,
               .name = "deepseek_named",
               .syntax = Syntax::named,
               .open = "<｜tool▁call▁begin｜>",
               .close = "<｜tool▁call▁end｜>",
               .name_end = "<｜tool▁sep｜>",
               .group_open = "<｜tool▁calls▁begin｜>",
               .group_close = "<｜tool▁calls▁end｜>"},
    FormatSpec{.format = Format::gemma,
               .name = "gemma",
               .syntax = Syntax::gemma,
               .open = "<|tool_call>",
               .close = "<tool_call|>",
               .quote = "<|\"|>"},
    FormatSpec{.format = Format::function_gemma,
               .name = "function_gemma",
               .syntax = Syntax::gemma,
               .open = "<start_function_call>",
               .close = "<end_function_call>",
               .quote = "<escape>"},
};

struct Sign {
  std::string_view text, other;  // both are in the template; `other` may be empty
  Format format;
};

// The first that fits counts: templates that write tags also mention <tool_call>.
constexpr std::array kSigns = {
    Sign{"<|channel|>", "<|message|>", Format::harmony},
    Sign{"<|tool_call>", "", Format::gemma},
    Sign{"<start_function_call>", "", Format::function_gemma},
    Sign{"[TOOL_CALLS]", "[ARGS]", Format::mistral_named},
    Sign{"[TOOL_CALLS]", "", Format::mistral_list},
    Sign{"<｜tool▁call▁begin｜>", "```json", Format::deepseek_json},
    Sign{"<｜tool▁call▁begin｜>", "", Format::deepseek_named},
    Sign{"<minimax:tool_call>", "", Format::minimax_tags},
    Sign{"<seed:tool_call>", "", Format::seed_tags},
    Sign{"<|tool_call_start|>", "", Format::lfm_pythonic},
    Sign{"<|tool_list_start|>", "", Format::lfm_pythonic},  // lists tools, and never writes a call itself
    Sign{"List of tools: [", "", Format::lfm_pythonic},
    Sign{"<arg_key>", "", Format::glm_tags},
    Sign{"<tool_call>", "<function=", Format::qwen_tags},
    Sign{"<tool_call>", "", Format::hermes},
    Sign{"<|tool_call|>", "", Format::granite_list},
    Sign{"[func_name1(", "", Format::llama_pythonic},
    Sign{"<|start_header_id|>", "\"parameters\"", Format::llama_json},
};

}  // namespace

const FormatSpec& spec_of(Format format) {
  return kSpecs[static_cast<size_t>(format)];
}

Format detect_format(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != std::string_view::npos; };
  const auto* sign = std::ranges::find_if(kSigns, [&](const Sign& s) { return has(s.text) && has(s.other); });
  return sign == kSigns.end() ? Format::hermes : sign->format;
}

}  // namespace inferno::calls
