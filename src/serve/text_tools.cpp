#include "serve/text_tools.h"

#include <nlohmann/json.hpp>

#include "serve/api_error.h"
#include "serve/chat_prompt.h"
#include "serve/dialect_requests.h"
#include "serve/reply.h"
#include "serve/request_fields.h"

namespace inferno::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

// A conversation as /v1/chat/completions would begin with it.
std::vector<PromptPiece> chat_text(const Fields& fields, std::string_view body, const CompletionLimits& limits,
                                   const Tokenizer& tokenizer) {
  CompletionRequest request;
  request.prompts.push_back(chat_of(fields, limits));
  const std::string prefill = take_prefill(fields, request.prompts.back());
  add_tools(fields, body, request);
  return chat_pieces(tokenizer, std::get<Prompt::Chat>(request.prompts.back().content), prefill);
}

// llama-server's form, {"content"} to {"tokens"}, or vLLM's, {"prompt"} or {"messages"} to {"count", "tokens"}.
OrderedJson tokenize(const Fields& fields, std::string_view body, const CompletionLimits& limits,
                     const Tokenizer& tokenizer) {
  if (const std::string* content = fields.string("content")) {
    const std::vector<int32_t> ids =
        tokenizer.encode(*content, {.parse_special = fields.boolean("parse_special").value_or(true),
                                    .add_bos = fields.boolean("add_special").value_or(false) && tokenizer.wants_bos()});
    if (!fields.boolean("with_pieces").value_or(false)) return {{"tokens", ids}};
    OrderedJson pieces = OrderedJson::array();
    for (const int32_t id : ids) pieces.push_back({{"id", id}, {"piece", tokenizer.piece(id)}});
    return {{"tokens", std::move(pieces)}};
  }
  std::vector<int32_t> ids;
  if (const std::string* prompt = fields.string("prompt")) {
    ids = tokenizer.encode(*prompt,
                           {.add_bos = fields.boolean("add_special_tokens").value_or(true) && tokenizer.wants_bos()});
  } else if (fields.find("messages") != nullptr) {
    ids = tokenizer.encode(chat_text(fields, body, limits, tokenizer));
  } else {
    fail_field("content", "is missing; give it, `prompt` or `messages`");
  }
  return {{"count", ids.size()}, {"max_model_len", limits.context}, {"tokens", std::move(ids)}};
}

// In both forms at once.
OrderedJson detokenize(const Fields& fields, const Tokenizer& tokenizer) {
  const Json* tokens = fields.array("tokens");
  if (tokens == nullptr) fail_field("tokens", "is missing");
  const std::vector<int32_t> ids = ids_of(*tokens, "tokens");
  for (const int32_t id : ids) {
    if (id >= tokenizer.vocab_size()) fail_field("tokens", "holds {}, which is not in the vocabulary", id);
  }
  const std::string text = tokenizer.decode(ids);
  return {{"content", text}, {"prompt", text}};
}

OrderedJson apply_template(const Fields& fields, std::string_view body, const CompletionLimits& limits,
                           const Tokenizer& tokenizer) {
  std::string text;
  for (const PromptPiece& piece : chat_text(fields, body, limits, tokenizer)) text += piece.text;
  return {{"prompt", text}};
}

OrderedJson count_tokens(Dialect dialect, const Fields& fields, std::string_view body, const CompletionLimits& limits,
                         const Tokenizer& tokenizer) {
  refuse_unsupported(fields);
  if (dialect == Dialect::openai_chat) {
    return {{"object", "response.input_tokens"},
            {"input_tokens", tokenizer.encode(chat_text(fields, body, limits, tokenizer)).size()}};
  }
  CompletionRequest request;
  if (dialect == Dialect::responses) {
    parse_responses(fields, limits, request);
    add_tools(fields, body, request);
    return {{"object", "response.input_tokens"}, {"input_tokens", prompt_tokens(&tokenizer, request, 0).size()}};
  }
  request.prompts.push_back(anthropic_prompt(fields, body, limits));
  request.prefill = take_prefill(fields, request.prompts.back());
  add_tools(fields, body, request);
  return {{"input_tokens", prompt_tokens(&tokenizer, request, 0).size()}};
}

}  // namespace

std::string run_text_tool(const Endpoint& endpoint, const Json& parsed, std::string_view body,
                          const CompletionLimits& limits, const Tokenizer* tokenizer) {
  const Fields fields(parsed);
  if (tokenizer == nullptr) throw ApiError(501, "this model has no vocabulary, or this build no tokenizers");
  switch (endpoint.action) {
    case Action::tokenize:
      return dump(tokenize(fields, body, limits, *tokenizer));
    case Action::detokenize:
      return dump(detokenize(fields, *tokenizer));
    case Action::apply_template:
      return dump(apply_template(fields, body, limits, *tokenizer));
    default:
      return dump(count_tokens(endpoint.dialect, fields, body, limits, *tokenizer));
  }
}

}  // namespace inferno::serve
