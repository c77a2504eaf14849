#include "serve/reply.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace inferno::serve {
namespace {

using Json = nlohmann::ordered_json;

// Bytes that are no UTF-8 (a token may end within a character) become U+FFFD.
std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

size_t characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

namespace {

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.generated_tokens},
          {"total_tokens", usage.prompt_tokens + usage.generated_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

}  // namespace

std::string_view finish_reason(StopReason reason) {
  return reason == StopReason::length || reason == StopReason::context_full ? "length" : "stop";
}

std::string event(std::string_view text) {
  return fmt::format("data: {}\n\n", text);
}

struct ReplyWriter::Parts {
  const ReplyWriter& writer;

  [[nodiscard]] std::string text_of(int32_t id) const {
    return writer.tokenizer_ == nullptr ? std::to_string(id) : std::string(writer.tokenizer_->piece(id));
  }

  [[nodiscard]] Json head(std::string_view object) const {
    return {
        {"id", writer.head_.id}, {"object", object}, {"created", writer.head_.created}, {"model", writer.head_.model}};
  }

  [[nodiscard]] Json chunk(Json choice) const {
    Json body = head(writer.head_.chat ? "chat.completion.chunk" : "text_completion");
    body["choices"] = Json::array({std::move(choice)});
    if (writer.head_.include_usage) body["usage"] = nullptr;
    return body;
  }

  // {"index", "delta" | "text", "logprobs", "finish_reason"}
  [[nodiscard]] Json choice(int32_t index, const char* key, Json content, Json logprobs, Json reason) const {
    return {{"index", index},
            {key, std::move(content)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(reason)}};
  }

  [[nodiscard]] Json chat_token(const TokenLogprob& token) const {
    const std::string text = text_of(token.id);
    Json bytes = Json::array();
    for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
    return {{"token", text}, {"logprob", token.logprob}, {"bytes", std::move(bytes)}};
  }

  [[nodiscard]] Json chat_logprobs(std::span<const Delta> tokens) const {
    Json content = Json::array();
    for (const Delta& token : tokens) {
      if (token.logprobs.empty()) continue;
      Json entry = chat_token(token.logprobs.front());
      entry["top_logprobs"] = Json::array();
      for (const TokenLogprob& top : std::span(token.logprobs).subspan(1))
        entry["top_logprobs"].push_back(chat_token(top));
      content.push_back(std::move(entry));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }

  [[nodiscard]] Json text_logprobs(std::span<const Delta> tokens, size_t text_offset) const {
    Json result = {{"tokens", Json::array()},
                   {"token_logprobs", Json::array()},
                   {"top_logprobs", Json::array()},
                   {"text_offset", Json::array()}};
    for (const Delta& token : tokens) {
      if (!token.logprobs.empty()) {
        result["tokens"].push_back(text_of(token.id));
        result["token_logprobs"].push_back(token.logprobs.front().logprob);
        Json top = Json::object();
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

  [[nodiscard]] Json logprobs(std::span<const Delta> tokens, size_t text_offset) const {
    if (!writer.head_.logprobs) return nullptr;
    return writer.head_.chat ? chat_logprobs(tokens) : text_logprobs(tokens, text_offset);
  }
};

std::string ReplyWriter::whole(std::span<const Choice> choices, const Usage& usage) const {
  const Parts parts{*this};
  Json body = parts.head(head_.chat ? "chat.completion" : "text_completion");
  body["choices"] = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    Json content = choice.text;
    if (head_.chat) content = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    body["choices"].push_back(parts.choice(static_cast<int32_t>(i), head_.chat ? "message" : "text", std::move(content),
                                           parts.logprobs(choice.tokens, 0), finish_reason(choice.reason)));
  }
  body["usage"] = usage_json(usage);
  return dump(body);
}

std::string ReplyWriter::opening(int32_t choice) const {
  const Parts parts{*this};
  return event(
      dump(parts.chunk(parts.choice(choice, "delta", {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr))));
}

std::string ReplyWriter::token(const Delta& delta, size_t text_offset) const {
  const Parts parts{*this};
  Json content = delta.text;
  if (head_.chat) content = {{"content", delta.text}};
  return event(dump(parts.chunk(parts.choice(delta.choice, head_.chat ? "delta" : "text", std::move(content),
                                             parts.logprobs({&delta, 1}, text_offset), nullptr))));
}

std::string ReplyWriter::ending(int32_t choice, StopReason reason) const {
  const Parts parts{*this};
  Json content = "";
  if (head_.chat) content = Json::object();
  return event(dump(parts.chunk(
      parts.choice(choice, head_.chat ? "delta" : "text", std::move(content), nullptr, finish_reason(reason)))));
}

std::string ReplyWriter::usage(const Usage& usage) const {
  Json body = Parts{*this}.head(head_.chat ? "chat.completion.chunk" : "text_completion");
  body["choices"] = Json::array();
  body["usage"] = usage_json(usage);
  return event(dump(body));
}

}  // namespace inferno::serve
