// What goes into a generation: structs whose fields are those of include/inferno.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "module.h"

namespace inferno::python {

void bind_options(nb::module_& m) {
  nb::class_<LoadOptions>(m, "LoadOptions", "How a model is loaded; see inferno.Llm.")
      .def(nb::init<>())
      .def_rw("backend", &LoadOptions::backend)
      .def_rw("threads", &LoadOptions::threads)
      .def_rw("affinity", &LoadOptions::affinity)
      .def_rw("numa", &LoadOptions::numa)
      .def_rw("context", &LoadOptions::context)
      .def_rw("kv_type", &LoadOptions::kv_type)
      .def_rw("kv_memory", &LoadOptions::kv_memory)
      .def_rw("max_sequences", &LoadOptions::max_sequences)
      .def_rw("draft", &LoadOptions::draft)
      .def_rw("max_token_latency_ms", &LoadOptions::max_token_latency_ms)
      .def_rw("profile", &LoadOptions::profile)
      .def_rw("all_logits", &LoadOptions::all_logits);
  nb::class_<Constraint>(m, "Constraint", "What a text must be; at most one field is set.")
      .def(nb::init<>())
      .def_rw("json_schema", &Constraint::json_schema)
      .def_rw("regex", &Constraint::regex)
      .def_rw("grammar", &Constraint::grammar)
      .def_rw("choice", &Constraint::choice);
  nb::class_<GenerateOptions>(m, "GenerateOptions", "Of one request; see inferno.Llm.generate.")
      .def(nb::init<>())
      .def_rw("max_new_tokens", &GenerateOptions::max_new_tokens)
      .def_rw("sampling", &GenerateOptions::sampling)
      .def_rw("samples", &GenerateOptions::samples)
      .def_rw("stop", &GenerateOptions::stop)
      .def_rw("stop_ids", &GenerateOptions::stop_ids)
      .def_rw("stop_at_end", &GenerateOptions::stop_at_end)
      .def_rw("top_logprobs", &GenerateOptions::top_logprobs)
      .def_rw("cache_salt", &GenerateOptions::cache_salt)
      .def_rw("reuse_prefix", &GenerateOptions::reuse_prefix)
      .def_rw("lookup", &GenerateOptions::lookup)
      .def_rw("prediction", &GenerateOptions::prediction)
      .def_rw("draft", &GenerateOptions::draft)
      .def_rw("max_draft", &GenerateOptions::max_draft)
      .def_rw("constraint", &GenerateOptions::constraint)
      .def(
          "add_bias", [](GenerateOptions& o, int32_t id, float bias) { o.logit_bias.push_back({id, bias}); },
          nb::arg("id"), nb::arg("bias"), "Adds to the logit of a token.");
  nb::class_<SamplingSettings>(m, "SamplingSettings", "How tokens are drawn.")
      .def(nb::init<>())
      .def_rw("temperature", &SamplingSettings::temperature)
      .def_rw("top_k", &SamplingSettings::top_k)
      .def_rw("top_p", &SamplingSettings::top_p)
      .def_rw("min_p", &SamplingSettings::min_p)
      .def_rw("repeat_penalty", &SamplingSettings::repeat_penalty)
      .def_rw("presence_penalty", &SamplingSettings::presence_penalty)
      .def_rw("frequency_penalty", &SamplingSettings::frequency_penalty)
      .def_rw("penalty_window", &SamplingSettings::penalty_window)
      .def_rw("seed", &SamplingSettings::seed);
  nb::class_<ToolCall>(m, "ToolCall", "A call of a tool in a conversation; arguments are JSON.")
      .def(nb::init<>())
      .def_rw("id", &ToolCall::id)
      .def_rw("name", &ToolCall::name)
      .def_rw("arguments", &ToolCall::arguments);
  nb::class_<ChatMessage>(m, "ChatMessage", "A message of a conversation.")
      .def(nb::init<>())
      .def_rw("role", &ChatMessage::role)
      .def_rw("content", &ChatMessage::content)
      .def_rw("reasoning_content", &ChatMessage::reasoning_content)
      .def_rw("tool_calls", &ChatMessage::tool_calls)
      .def_rw("tool_call_id", &ChatMessage::tool_call_id)
      .def_rw("name", &ChatMessage::name);
  nb::class_<ChatOptions>(m, "ChatOptions", "How a conversation becomes text; tools are JSON.")
      .def(nb::init<>())
      .def_rw("add_generation_prompt", &ChatOptions::add_generation_prompt)
      .def_rw("enable_thinking", &ChatOptions::enable_thinking)
      .def_rw("tools", &ChatOptions::tools)
      .def_rw("tool_choice", &ChatOptions::tool_choice)
      .def_rw("parallel_tool_calls", &ChatOptions::parallel_tool_calls)
      .def_rw("chat_template", &ChatOptions::chat_template);
  nb::class_<Prompt>(m, "Prompt", "What to continue: a text, token ids, or a conversation.")
      .def_static(
          "text", [](const nb::bytes& text) { return Prompt(std::string(text.c_str(), text.size())); }, nb::arg("text"),
          "Bytes of UTF-8.")
      .def_static(
          "ids", [](std::vector<int32_t> ids) { return Prompt(std::move(ids)); }, nb::arg("ids"), "Token ids.")
      .def_static(
          "chat",
          [](std::vector<ChatMessage> messages, ChatOptions options) {
            return Prompt(std::move(messages), std::move(options));
          },
          nb::arg("messages"), nb::arg("options"), "Messages, in the format of the model's chat template.");
}

}  // namespace inferno::python
