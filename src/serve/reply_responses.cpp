// OpenAI's /v1/responses: items of reasoning, message and calls, and numbered events that build them up.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "serve/reply.h"

namespace inferno::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson text_part(std::string_view text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", OrderedJson::array()},
          {"logprobs", OrderedJson::array()}};
}

class ResponsesWriter final : public ReplyWriter {
 public:
  using ReplyWriter::ReplyWriter;

  [[nodiscard]] std::string whole(std::span<const Choice> choices, const Usage& usage) const override {
    return dump(final_response(choices.front(), usage));
  }

  [[nodiscard]] std::string opening() override {
    std::string events = numbered("response.created", {{"response", response("in_progress")}});
    events += numbered("response.in_progress", {{"response", response("in_progress")}});
    return events;
  }

  [[nodiscard]] std::string token(const Delta& delta) override {
    std::string events;
    if (!delta.thinking.empty()) {
      events += open(Item::reasoning);
      text_ += delta.thinking;
      events += numbered("response.reasoning_text.delta", at({{"delta", delta.thinking}}));
    }
    if (!delta.text.empty()) {
      events += open(Item::message);
      text_ += delta.text;
      events += numbered("response.output_text.delta", at({{"delta", delta.text}, {"logprobs", OrderedJson::array()}}));
    }
    for (const ToolCallPiece& piece : delta.calls) {
      if (!piece.name.empty()) {
        events += close();
        call_ = {.id = piece.id, .name = piece.name};
        events += open(Item::call);
      }
      if (piece.arguments.empty()) continue;
      text_ += piece.arguments;
      events += numbered("response.function_call_arguments.delta", at_item({{"delta", piece.arguments}}));
    }
    return events;
  }

  [[nodiscard]] std::string ending(std::span<const Choice> choices, const Usage& usage) override {
    std::string events = item_ == Item::none && index_ == 0 ? open(Item::message) : "";
    events += close();
    OrderedJson body = final_response(choices.front(), usage);
    // As the events built them: words may follow calls.
    if (body["status"] == "completed") body["output"] = done_;
    return events +
           numbered(body["status"] == "completed" ? "response.completed" : "response.incomplete", {{"response", body}});
  }

  [[nodiscard]] std::string failure(const ApiError& error) const override {
    const OrderedJson body = {{"type", "error"},
                              {"code", error.code().empty() ? "server_error" : error.code()},
                              {"message", error.what()},
                              {"param", nullptr},
                              {"sequence_number", number_}};
    return event(dump(body), "error");
  }

 private:
  enum class Item : uint8_t { none, reasoning, message, call };

  std::string numbered(std::string_view type, const OrderedJson& fields) {
    OrderedJson body = {{"type", type}, {"sequence_number", number_++}};
    body.update(fields);
    return event(dump(body), type);
  }

  [[nodiscard]] OrderedJson response(std::string_view status) const {
    const SamplingSettings& sampling = request().settings.sampling;
    const int32_t tokens = request().settings.max_new_tokens;
    return {{"id", "resp_" + head().id},
            {"object", "response"},
            {"created_at", head().created},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", request().instructions.empty() ? OrderedJson() : OrderedJson(request().instructions)},
            {"max_output_tokens", tokens < 0 ? OrderedJson() : OrderedJson(tokens)},
            {"model", head().model},
            {"output", OrderedJson::array()},
            {"parallel_tool_calls", request().tools.parallel},
            {"previous_response_id", nullptr},
            {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
            {"store", false},
            {"temperature", rounded(sampling.temperature)},
            {"text", {{"format", {{"type", "text"}}}}},
            {"tool_choice", tool_choice()},
            {"tools", tools()},
            {"top_p", rounded(sampling.top_p)},
            {"truncation", "disabled"},
            {"metadata", OrderedJson::object()}};
  }

  [[nodiscard]] OrderedJson tool_choice() const {
    const ToolRequest& asked = request().tools;
    if (!asked.name.empty()) return {{"type", "function"}, {"name", asked.name}};
    return asked.required ? "required" : "auto";
  }

  // Without the `function` around each that chat completions have.
  [[nodiscard]] OrderedJson tools() const {
    OrderedJson shown = OrderedJson::array();
    if (request().tools.empty()) return shown;
    size_t index = 0;
    for (const OrderedJson& tool : OrderedJson::parse(request().tools.json)) {
      OrderedJson flat = {{"type", "function"}, {"strict", (*request().tools.tools)[index++].strict}};
      flat.update(tool["function"]);
      shown.push_back(std::move(flat));
    }
    return shown;
  }

  [[nodiscard]] OrderedJson final_response(const Choice& choice, const Usage& usage) const {
    const bool is_cut = finish_reason(choice.reason) == "length";
    OrderedJson body = response(is_cut ? "incomplete" : "completed");
    if (is_cut) body["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (!choice.thinking.empty()) body["output"].push_back(item(Item::reasoning, choice.thinking, "completed"));
    if (!choice.text.empty() || choice.calls.empty()) {
      body["output"].push_back(item(Item::message, choice.text, is_cut ? "incomplete" : "completed"));
    }
    for (const ToolCall& call : choice.calls) {
      body["output"].push_back(call_item(call, call.arguments, is_cut ? "incomplete" : "completed"));
    }
    body["usage"] = {{"input_tokens", usage.prompt_tokens},
                     {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
                     {"output_tokens", usage.generated_tokens},
                     {"output_tokens_details", {{"reasoning_tokens", 0}}},
                     {"total_tokens", usage.prompt_tokens + usage.generated_tokens},
                     {"reuse_end", to_string(usage.reuse_end)},
                     {"queue_ms", rounded(usage.queue_ms)},
                     {"prefill_ms", rounded(usage.prefill_ms)},
                     {"decode_ms", rounded(usage.decode_ms)}};
    return body;
  }

  // Of items after the first of their kind in a stream, with a number.
  [[nodiscard]] std::string item_id(Item item) const {
    if (item == Item::call) return fmt::format("fc_{}_{}", head().id, call_.id);
    const bool again = item == Item::message && messages_ > 1;
    return (item == Item::message ? "msg_" : "rs_") + head().id + (again ? fmt::format("_{}", messages_) : "");
  }

  [[nodiscard]] OrderedJson call_item(const ToolCall& call, std::string_view arguments, std::string_view status) const {
    return {{"id", fmt::format("fc_{}_{}", head().id, call.id)},
            {"type", "function_call"},
            {"status", status},
            {"arguments", arguments},
            {"call_id", call.id},
            {"name", call.name}};
  }

  [[nodiscard]] OrderedJson item(Item kind, std::string_view text, std::string_view status) const {
    if (kind == Item::call) return call_item(call_, text, status);
    if (kind == Item::reasoning) {
      OrderedJson content = OrderedJson::array();
      if (status != "in_progress") content.push_back({{"type", "reasoning_text"}, {"text", text}});
      return {{"id", item_id(kind)},
              {"type", "reasoning"},
              {"summary", OrderedJson::array()},
              {"content", std::move(content)},
              {"status", status}};
    }
    OrderedJson content = OrderedJson::array();
    if (status != "in_progress") content.push_back(text_part(text));
    return {{"id", item_id(kind)},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  // Where in the output the open item is, and its only part.
  [[nodiscard]] OrderedJson at_item(const OrderedJson& fields) const {
    OrderedJson body = {{"item_id", item_id(item_)}, {"output_index", index_}};
    body.update(fields);
    return body;
  }
  [[nodiscard]] OrderedJson at(const OrderedJson& fields) const {
    OrderedJson body = at_item({{"content_index", 0}});
    body.update(fields);
    return body;
  }

  std::string open(Item kind) {
    if (item_ == kind) return {};
    std::string events = close();
    item_ = kind;
    messages_ += kind == Item::message ? 1 : 0;
    events +=
        numbered("response.output_item.added", {{"output_index", index_}, {"item", item(kind, "", "in_progress")}});
    if (kind == Item::message) events += numbered("response.content_part.added", at({{"part", text_part("")}}));
    return events;
  }

  std::string close() {
    if (item_ == Item::none) return {};
    std::string events;
    if (item_ == Item::message) {
      events += numbered("response.output_text.done", at({{"text", text_}, {"logprobs", OrderedJson::array()}}));
      events += numbered("response.content_part.done", at({{"part", text_part(text_)}}));
    } else if (item_ == Item::call) {
      events +=
          numbered("response.function_call_arguments.done", at_item({{"name", call_.name}, {"arguments", text_}}));
    } else {
      events += numbered("response.reasoning_text.done", at({{"text", text_}}));
    }
    done_.push_back(item(item_, text_, "completed"));
    events += numbered("response.output_item.done", {{"output_index", index_}, {"item", done_.back()}});
    item_ = Item::none;
    text_.clear();
    ++index_;
    return events;
  }

  Item item_ = Item::none;
  std::string text_;  // of the open item
  ToolCall call_;     // that it is, where it is one
  OrderedJson done_ = OrderedJson::array();
  int32_t index_ = 0;
  int32_t messages_ = 0;
  int64_t number_ = 0;
};

}  // namespace

std::unique_ptr<ReplyWriter> make_responses_writer(ReplyHead head) {
  return std::make_unique<ResponsesWriter>(std::move(head));
}

}  // namespace inferno::serve
