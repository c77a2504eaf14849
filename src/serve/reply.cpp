#include "serve/reply.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "inferno/inferno.h"

namespace inferno::serve {

using OrderedJson = nlohmann::ordered_json;

std::string dump(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string_view finish_reason(StopReason reason) {
  return reason == StopReason::length || reason == StopReason::context_full ? "length" : "stop";
}

std::string_view finish_reason(const Choice& choice) {
  const std::string_view reason = finish_reason(choice.reason);
  return choice.calls.empty() || reason == "length" ? reason : "tool_calls";
}

double rounded(double ms) {
  return std::round(ms * 1e3) / 1e3;
}

double per_second(int64_t tokens, double ms) {
  return ms > 0 ? rounded(static_cast<double>(tokens) * 1e3 / ms) : 0;
}

OrderedJson timings_json(const Usage& usage) {
  const int64_t computed = usage.prompt_tokens - usage.cached_tokens;
  const int64_t steps = std::max<int64_t>(usage.generated_tokens - 1, 0);
  const double decode_ms = rounded(usage.decode_ms);
  const auto per_token = [](double ms, int64_t tokens) { return tokens > 0 ? ms / static_cast<double>(tokens) : 0.0; };
  const auto rate = [](double ms, int64_t tokens) { return ms > 0 ? 1e3 / ms * static_cast<double>(tokens) : 0.0; };
  OrderedJson timings = {{"cache_n", usage.cached_tokens},
                         {"prompt_n", computed},
                         {"prompt_ms", rounded(usage.prefill_ms)},
                         {"prompt_per_token_ms", per_token(usage.prefill_ms, computed)},
                         {"prompt_per_second", rate(usage.prefill_ms, computed)},
                         {"predicted_n", usage.generated_tokens},
                         {"predicted_ms", decode_ms},
                         {"predicted_per_token_ms", per_token(decode_ms, steps)},
                         {"predicted_per_second", rate(decode_ms, steps)},
                         {"queue_ms", rounded(usage.queue_ms)}};
  if (usage.drafted_tokens > 0) {
    timings["draft_n"] = usage.drafted_tokens;
    timings["draft_n_accepted"] = usage.accepted_tokens;
  }
  return timings;
}

void add_progress(OrderedJson& body, const PromptUpdate& prompt) {
  body["prompt_progress"] = {{"total", prompt.total},
                             {"cache", prompt.reused},
                             {"processed", prompt.computed},
                             {"time_ms", rounded(prompt.ms)}};
  body["timings"] =
      timings_json({.prompt_tokens = prompt.computed, .cached_tokens = prompt.reused, .prefill_ms = prompt.ms});
}

std::string event(std::string_view text, std::string_view name) {
  return name.empty() ? fmt::format("data: {}\n\n", text) : fmt::format("event: {}\ndata: {}\n\n", name, text);
}

std::string ReplyWriter::text_of(int32_t id) const {
  return head_.tokenizer == nullptr ? std::to_string(id) : std::string(head_.tokenizer->piece(id));
}

namespace {

OrderedJson usage_json(const Usage& usage) {
  OrderedJson json = {{"prompt_tokens", usage.prompt_tokens},
                      {"completion_tokens", usage.generated_tokens},
                      {"total_tokens", usage.prompt_tokens + usage.generated_tokens},
                      {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                      {"reuse_end", to_string(usage.reuse_end)},
                      {"queue_ms", rounded(usage.queue_ms)},
                      {"prefill_ms", rounded(usage.prefill_ms)},
                      {"decode_ms", rounded(usage.decode_ms)}};
  if (usage.drafted_tokens > 0) {
    json["completion_tokens_details"] = {{"accepted_prediction_tokens", usage.accepted_tokens},
                                         {"rejected_prediction_tokens", usage.drafted_tokens - usage.accepted_tokens}};
  }
  return json;
}

OrderedJson call_json(const ToolCall& call) {
  return {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

// The first piece of a call has its id, its type and its name.
OrderedJson call_json(const ToolCallPiece& piece) {
  OrderedJson body = {{"index", piece.index}};
  if (!piece.name.empty()) body.update({{"id", piece.id}, {"type", "function"}});
  body["function"] = OrderedJson::object();
  if (!piece.name.empty()) body["function"]["name"] = piece.name;
  body["function"]["arguments"] = piece.arguments;
  return body;
}

// "delta" of a chat's chunk.
std::string delta_text(const Delta& delta) {
  if (delta.thinking.empty() && delta.calls.empty()) return fmt::format(R"({{"content":{}}})", dump(delta.text));
  OrderedJson content = OrderedJson::object();
  if (!delta.thinking.empty()) content["reasoning_content"] = delta.thinking;
  for (const ToolCallPiece& piece : delta.calls) content["tool_calls"].push_back(call_json(piece));
  if (!delta.text.empty()) content["content"] = delta.text;
  return dump(content);
}

OrderedJson message_json(const Choice& choice) {
  OrderedJson message = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  if (!choice.calls.empty() && choice.text.empty()) message["content"] = nullptr;
  for (const ToolCall& call : choice.calls) message["tool_calls"].push_back(call_json(call));
  return message;
}

// OpenAI's /v1/completions and /v1/chat/completions.
class OpenAiWriter final : public ReplyWriter {
 public:
  explicit OpenAiWriter(ReplyHead head)
      : ReplyWriter(std::move(head)),
        chunk_head_(dump(head_json(is_chat() ? "chat.completion.chunk" : "text_completion"))),
        offsets_(static_cast<size_t>(request().choices())) {
    chunk_head_.back() = ',';
  }

  [[nodiscard]] std::string whole(std::span<const Choice> choices, const Usage& usage) const override;
  [[nodiscard]] std::string opening() override;
  [[nodiscard]] std::string progress(int32_t choice, const PromptUpdate& prompt) override;
  [[nodiscard]] std::string token(const Delta& delta) override;
  [[nodiscard]] std::string ending(std::span<const Choice> choices, const Usage& usage) override;
  [[nodiscard]] std::string failure(const ApiError& error) const override { return event(error_body(error)); }

 private:
  [[nodiscard]] bool is_chat() const { return request().dialect == Dialect::openai_chat; }
  [[nodiscard]] OrderedJson head_json(std::string_view object) const;
  [[nodiscard]] std::string_view no_content() const { return is_chat() ? "{}" : R"("")"; }
  void add_explanation(OrderedJson& body, const Usage& usage) const;
  [[nodiscard]] std::string chunk(int32_t index, std::string_view content, std::string_view logprobs = "null",
                                  std::string_view reason = "null", const OrderedJson& more = {}) const;
  [[nodiscard]] OrderedJson chat_token(const TokenLogprob& token) const;
  [[nodiscard]] OrderedJson chat_logprobs(std::span<const Delta> tokens) const;
  [[nodiscard]] OrderedJson text_logprobs(std::span<const Delta> tokens, size_t text_offset) const;
  [[nodiscard]] OrderedJson logprobs(std::span<const Delta> tokens, size_t text_offset) const;

  std::string chunk_head_;       // of every chunk, up to its choices: tokens are written one by one
  std::vector<size_t> offsets_;  // [choice] characters of the text written
};

OrderedJson OpenAiWriter::head_json(std::string_view object) const {
  return {{"id", (is_chat() ? "chatcmpl-" : "cmpl-") + head().id},
          {"object", object},
          {"created", head().created},
          {"model", head().model},
          {"system_fingerprint", "b-inferno-" + version()}};
}

// A chunk with one choice, and the members of `more` beside it. Put together from JSON texts, since every token has one
// and a tree of objects costs several times as much.
std::string OpenAiWriter::chunk(int32_t index, std::string_view content, std::string_view logprobs,
                                std::string_view reason, const OrderedJson& more) const {
  std::string rest = more.empty() ? "}" : dump(more);
  if (!more.empty()) rest.front() = ',';
  return event(fmt::format(R"({}"choices":[{{"index":{},"{}":{},"logprobs":{},"finish_reason":{}}}]{}{})", chunk_head_,
                           index, is_chat() ? "delta" : "text", content, logprobs, reason,
                           request().include_usage ? R"(,"usage":null)" : "", rest));
}

OrderedJson OpenAiWriter::chat_token(const TokenLogprob& token) const {
  const std::string text = text_of(token.id);
  OrderedJson bytes = OrderedJson::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", text}, {"logprob", token.logprob}, {"bytes", std::move(bytes)}};
}

OrderedJson OpenAiWriter::chat_logprobs(std::span<const Delta> tokens) const {
  OrderedJson content = OrderedJson::array();
  for (const Delta& token : tokens) {
    if (token.logprobs.empty()) continue;
    OrderedJson entry = chat_token(token.logprobs.front());
    entry["top_logprobs"] = OrderedJson::array();
    for (const TokenLogprob& top : std::span(token.logprobs).subspan(1))
      entry["top_logprobs"].push_back(chat_token(top));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

OrderedJson OpenAiWriter::text_logprobs(std::span<const Delta> tokens, size_t text_offset) const {
  OrderedJson result = {{"tokens", OrderedJson::array()},
                        {"token_logprobs", OrderedJson::array()},
                        {"top_logprobs", OrderedJson::array()},
                        {"text_offset", OrderedJson::array()}};
  for (const Delta& token : tokens) {
    if (!token.logprobs.empty()) {
      result["tokens"].push_back(text_of(token.id));
      result["token_logprobs"].push_back(token.logprobs.front().logprob);
      OrderedJson top = OrderedJson::object();
      for (const TokenLogprob& entry : std::span(token.logprobs).subspan(1)) {
        top.emplace(text_of(entry.id), entry.logprob);
      }
      result["top_logprobs"].push_back(std::move(top));
      result["text_offset"].push_back(text_offset);
    }
    text_offset += characters(token.text);
  }
  return result;
}

OrderedJson OpenAiWriter::logprobs(std::span<const Delta> tokens, size_t text_offset) const {
  if (!request().logprobs()) return nullptr;
  return is_chat() ? chat_logprobs(tokens) : text_logprobs(tokens, text_offset);
}

// What llama-server adds: times, and the prompt where it is to be shown.
void OpenAiWriter::add_explanation(OrderedJson& body, const Usage& usage) const {
  body["timings"] = timings_json(usage);
  if (head().prompts.empty()) return;
  body["__verbose"] = {{"prompt", head().prompts.front()}};
}

std::string OpenAiWriter::whole(std::span<const Choice> choices, const Usage& usage) const {
  OrderedJson body = head_json(is_chat() ? "chat.completion" : "text_completion");
  body["choices"] = OrderedJson::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    OrderedJson content = choice.text;
    if (is_chat()) content = message_json(choice);
    if (!choice.thinking.empty()) content["reasoning_content"] = choice.thinking;
    body["choices"].push_back({{"index", i},
                               {is_chat() ? "message" : "text", std::move(content)},
                               {"logprobs", logprobs(choice.tokens, 0)},
                               {"finish_reason", finish_reason(choice)}});
  }
  body["usage"] = usage_json(usage);
  add_explanation(body, usage);
  return dump(body);
}

std::string OpenAiWriter::opening() {
  std::string events;
  for (int32_t i = 0; is_chat() && i < request().choices(); ++i) {
    events += chunk(i, R"({"role":"assistant","content":""})");
  }
  return events;
}

std::string OpenAiWriter::progress(int32_t choice, const PromptUpdate& prompt) {
  OrderedJson more = OrderedJson::object();
  add_progress(more, prompt);
  return chunk(choice, no_content(), "null", "null", more);
}

std::string OpenAiWriter::token(const Delta& delta) {
  const bool has_logprobs = request().logprobs() && !delta.logprobs.empty();
  if (delta.text.empty() && delta.thinking.empty() && delta.calls.empty() && !has_logprobs) return {};
  size_t& offset = offsets_[static_cast<size_t>(delta.choice)];
  std::string written = chunk(delta.choice, is_chat() ? delta_text(delta) : dump(delta.text),
                              request().logprobs() ? dump(logprobs({&delta, 1}, offset)) : "null");
  offset += characters(delta.text);
  return written;
}

std::string OpenAiWriter::ending(std::span<const Choice> choices, const Usage& usage) {
  std::string events;
  for (size_t i = 0; i < choices.size(); ++i) {
    events += chunk(static_cast<int32_t>(i), no_content(), "null", dump(finish_reason(choices[i])));
  }
  if (request().include_usage) {
    OrderedJson body = head_json(is_chat() ? "chat.completion.chunk" : "text_completion");
    body["choices"] = OrderedJson::array();
    body["usage"] = usage_json(usage);
    add_explanation(body, usage);
    events += event(dump(body));
  }
  return events + "data: [DONE]\n\n";
}

}  // namespace

std::unique_ptr<ReplyWriter> make_writer(ReplyHead head) {
  switch (head.request->dialect) {
    case Dialect::native:
      return make_native_writer(std::move(head));
    case Dialect::anthropic:
      return make_anthropic_writer(std::move(head));
    case Dialect::responses:
      return make_responses_writer(std::move(head));
    case Dialect::ollama_generate:
    case Dialect::ollama_chat:
      return make_ollama_writer(std::move(head));
    case Dialect::openai_text:
    case Dialect::openai_chat:
      break;
  }
  return std::make_unique<OpenAiWriter>(std::move(head));
}

}  // namespace inferno::serve
