// Anthropic's form: blocks of thinking, text and calls of tools.
#include <nlohmann/json.hpp>

#include "serve/reply.h"

namespace inferno::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson anthropic_usage(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.generated_tokens},
          {"reuse_end", to_string(usage.reuse_end)},
          {"queue_ms", rounded(usage.queue_ms)},
          {"prefill_ms", rounded(usage.prefill_ms)},
          {"decode_ms", rounded(usage.decode_ms)}};
}

OrderedJson stop_reason(const Choice& choice) {
  if (choice.reason == StopReason::stop_string) return "stop_sequence";
  const std::string_view reason = finish_reason(choice);
  return reason == "length" ? "max_tokens" : reason == "tool_calls" ? "tool_use" : "end_turn";
}

OrderedJson tool_use(const std::string& id, const std::string& name, OrderedJson input) {
  return {{"type", "tool_use"}, {"id", id}, {"name", name}, {"input", std::move(input)}};
}

// Arguments that are no object, because the answer was cut, are none.
OrderedJson input_of(const ToolCall& call) {
  OrderedJson input = OrderedJson::parse(call.arguments, nullptr, false);
  return input.is_object() ? input : OrderedJson::object();
}

OrderedJson stop_sequence(const Choice& choice) {
  return choice.reason == StopReason::stop_string ? OrderedJson(choice.stop) : OrderedJson();
}

class AnthropicWriter final : public ReplyWriter {
 public:
  using ReplyWriter::ReplyWriter;

  [[nodiscard]] std::string whole(std::span<const Choice> choices, const Usage& usage) const override {
    const Choice& choice = choices.front();
    OrderedJson content = OrderedJson::array();
    if (!choice.thinking.empty()) {
      content.push_back({{"type", "thinking"}, {"thinking", choice.thinking}, {"signature", ""}});
    }
    if (!choice.text.empty() || (content.empty() && choice.calls.empty())) {
      content.push_back({{"type", "text"}, {"text", choice.text}});
    }
    for (const ToolCall& call : choice.calls) content.push_back(tool_use(call.id, call.name, input_of(call)));
    OrderedJson body = message(std::move(content));
    body["stop_reason"] = stop_reason(choice);
    body["stop_sequence"] = stop_sequence(choice);
    body["usage"] = anthropic_usage(usage);
    return dump(body);
  }

  [[nodiscard]] std::string opening() override {
    OrderedJson body = message(OrderedJson::array());
    body["stop_reason"] = nullptr;
    body["stop_sequence"] = nullptr;
    body["usage"] = {{"input_tokens", head().prompt_tokens},
                     {"cache_creation_input_tokens", 0},
                     {"cache_read_input_tokens", 0},
                     {"output_tokens", 0}};
    return named({{"type", "message_start"}, {"message", std::move(body)}});
  }

  [[nodiscard]] std::string token(const Delta& delta) override {
    std::string events;
    if (!delta.thinking.empty()) {
      events += open(Block::thinking);
      events += block_delta({{"type", "thinking_delta"}, {"thinking", delta.thinking}});
    }
    if (!delta.text.empty()) {
      events += open(Block::text);
      events += block_delta({{"type", "text_delta"}, {"text", delta.text}});
    }
    for (const ToolCallPiece& piece : delta.calls) {
      if (!piece.name.empty()) {
        events += close();
        events += start(Block::call, tool_use(piece.id, piece.name, OrderedJson::object()));
      }
      if (piece.arguments.empty()) continue;
      events += block_delta({{"type", "input_json_delta"}, {"partial_json", piece.arguments}});
    }
    return events;
  }

  [[nodiscard]] std::string ending(std::span<const Choice> choices, const Usage& usage) override {
    std::string events = block_ == Block::none && index_ == 0 ? open(Block::text) : "";
    events += close();
    const Choice& choice = choices.front();
    events += named({{"type", "message_delta"},
                     {"delta", {{"stop_reason", stop_reason(choice)}, {"stop_sequence", stop_sequence(choice)}}},
                     {"usage", anthropic_usage(usage)}});
    return events + named({{"type", "message_stop"}});
  }

  [[nodiscard]] std::string failure(const ApiError& error) const override {
    return event(error_body(error, ErrorForm::anthropic), "error");
  }

 private:
  enum class Block : uint8_t { none, thinking, text, call };

  // Events are named by their type.
  static std::string named(const OrderedJson& body) { return event(dump(body), body["type"].get<std::string>()); }

  [[nodiscard]] OrderedJson message(OrderedJson content) const {
    return {{"id", "msg_" + head().id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", head().model},
            {"content", std::move(content)}};
  }

  std::string open(Block block) {
    if (block_ == block) return {};
    OrderedJson content = {{"type", "text"}, {"text", ""}};
    if (block == Block::thinking) content = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    std::string events = close();  // one after the other: both change the block
    return events += start(block, std::move(content));
  }

  std::string start(Block block, OrderedJson content) {
    block_ = block;
    return named({{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(content)}});
  }

  std::string close() {
    if (block_ == Block::none) return {};
    block_ = Block::none;
    return named({{"type", "content_block_stop"}, {"index", index_++}});
  }

  [[nodiscard]] std::string block_delta(OrderedJson delta) const {
    return named({{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }

  Block block_ = Block::none;
  int32_t index_ = 0;
};

}  // namespace

std::unique_ptr<ReplyWriter> make_anthropic_writer(ReplyHead head) {
  return std::make_unique<AnthropicWriter>(std::move(head));
}

}  // namespace inferno::serve
