// How models write calls of tools. Each was trained on one way, which its chat template shows.
#pragma once

#include <cstdint>
#include <string_view>

namespace inferno::calls {

enum class Format : uint8_t {
  hermes,          // <tool_call>{"name": "f", "arguments": {...}}</tool_call>: Hermes, Qwen, and many others
  qwen_tags,       // <tool_call><function=f><parameter=a>1</parameter></function></tool_call>: Qwen3-Coder, Qwen3.5
  seed_tags,       // the same in <seed:tool_call>: Seed-OSS
  minimax_tags,    // <minimax:tool_call><invoke name="f"><parameter name="a">1</parameter></invoke>...: MiniMax-M2
  glm_tags,        // <tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>: GLM-4.5
  llama_json,      // {"name": "f", "parameters": {...}} as the whole answer: Llama 3
  llama_pythonic,  // [f(a=1), g()] as the whole answer: Llama 3.2, Llama 4
  lfm_pythonic,    // <|tool_call_start|>[f(a=1)]<|tool_call_end|>: LFM2
  mistral_list,    // [TOOL_CALLS][{"name": "f", "arguments": {...}}]: Mistral until 2025
  mistral_named,   // [TOOL_CALLS]f[ARGS]{...}: Mistral since
  granite_list,    // <|tool_call|>[{"name": "f", "arguments": {...}}]: Granite 3, Phi-4-mini
  harmony,         // <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>: gpt-oss
  deepseek_json,   // <｜tool▁call▁begin｜>function<｜tool▁sep｜>f, then ```json ... ```: DeepSeek V3, R1
  deepseek_named,  // <｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}<｜tool▁call▁end｜>: DeepSeek V3.1
  gemma,           // <|tool_call>call:f{a:<|"|>text<|"|>}<tool_call|>: Gemma 4
  function_gemma,  // <start_function_call>call:f{a:<escape>text<escape>}<end_function_call>: FunctionGemma
};

// What a syntax is made of. Spaces and line ends between these parts do not count.
enum class Syntax : uint8_t { object, list, bare_objects, named, tags, pythonic, harmony, gemma };

struct TagNames {
  std::string_view call_open, name_end, call_close;
  std::string_view key_open, key_end, value_open, value_close;
};

struct FormatSpec {
  Format format;
  std::string_view name;  // "hermes"
  Syntax syntax;
  std::string_view open, close;      // around a call, or around a list of calls; may be empty
  std::string_view name_end = {};    // named: what separates a name from its arguments
  std::string_view group_open = {};  // around all calls of an answer
  std::string_view group_close = {};
  std::string_view quote = {};  // gemma: around strings
  TagNames tags = {};
};

[[nodiscard]] const FormatSpec& spec_of(Format format);
// The format that a chat template shows. One that shows none, or no template: hermes.
[[nodiscard]] Format detect_format(std::string_view chat_template);

}  // namespace inferno::calls
