// OpenAI's /v1/responses: items of reasoning and message, and numbered events that build them up.
#include <nlohmann/json.hpp>

#include "serve/reply.h"

namespace inferno::serve {
namespace {

using Json = nlohmann::ordered_json;

Json text_part(std::string_view text) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
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
      events += numbered("response.output_text.delta", at({{"delta", delta.text}, {"logprobs", Json::array()}}));
    }
    return events;
  }

  [[nodiscard]] std::string ending(std::span<const Choice> choices, const Usage& usage) override {
    std::string events = item_ == Item::none ? open(Item::message) : "";
    events += close();
    const Json body = final_response(choices.front(), usage);
    return events +
           numbered(body["status"] == "completed" ? "response.completed" : "response.incomplete", {{"response", body}});
  }

  [[nodiscard]] std::string failure(const ApiError& error) const override {
    const Json body = {{"type", "error"},
                       {"code", error.code().empty() ? "server_error" : error.code()},
                       {"message", error.what()},
                       {"param", nullptr},
                       {"sequence_number", number_}};
    return event(dump(body), "error");
  }

 private:
  enum class Item : uint8_t { none, reasoning, message };

  std::string numbered(std::string_view type, const Json& fields) {
    Json body = {{"type", type}, {"sequence_number", number_++}};
    body.update(fields);
    return event(dump(body), type);
  }

  [[nodiscard]] Json response(std::string_view status) const {
    const SamplingSettings& sampling = request().settings.sampling;
    const int32_t tokens = request().settings.max_new_tokens;
    return {{"id", "resp_" + head().id},
            {"object", "response"},
            {"created_at", head().created},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", request().instructions.empty() ? Json() : Json(request().instructions)},
            {"max_output_tokens", tokens < 0 ? Json() : Json(tokens)},
            {"model", head().model},
            {"output", Json::array()},
            {"parallel_tool_calls", true},
            {"previous_response_id", nullptr},
            {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
            {"store", false},
            {"temperature", rounded(sampling.temperature)},
            {"text", {{"format", {{"type", "text"}}}}},
            {"tool_choice", "auto"},
            {"tools", Json::array()},
            {"top_p", rounded(sampling.top_p)},
            {"truncation", "disabled"},
            {"metadata", Json::object()}};
  }

  [[nodiscard]] Json final_response(const Choice& choice, const Usage& usage) const {
    const bool is_cut = finish_reason(choice.reason) == "length";
    Json body = response(is_cut ? "incomplete" : "completed");
    if (is_cut) body["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (!choice.thinking.empty()) body["output"].push_back(item(Item::reasoning, choice.thinking, "completed"));
    body["output"].push_back(item(Item::message, choice.text, is_cut ? "incomplete" : "completed"));
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

  [[nodiscard]] std::string item_id(Item item) const { return (item == Item::message ? "msg_" : "rs_") + head().id; }

  [[nodiscard]] Json item(Item kind, std::string_view text, std::string_view status) const {
    if (kind == Item::reasoning) {
      Json content = Json::array();
      if (status != "in_progress") content.push_back({{"type", "reasoning_text"}, {"text", text}});
      return {{"id", item_id(kind)},
              {"type", "reasoning"},
              {"summary", Json::array()},
              {"content", std::move(content)},
              {"status", status}};
    }
    Json content = Json::array();
    if (status != "in_progress") content.push_back(text_part(text));
    return {{"id", item_id(kind)},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  // Where in the output the open item's only part is.
  [[nodiscard]] Json at(const Json& fields) const {
    Json body = {{"item_id", item_id(item_)}, {"output_index", index_}, {"content_index", 0}};
    body.update(fields);
    return body;
  }

  std::string open(Item kind) {
    if (item_ == kind) return {};
    std::string events = close();
    item_ = kind;
    events +=
        numbered("response.output_item.added", {{"output_index", index_}, {"item", item(kind, "", "in_progress")}});
    if (kind == Item::message) events += numbered("response.content_part.added", at({{"part", text_part("")}}));
    return events;
  }

  std::string close() {
    if (item_ == Item::none) return {};
    std::string events;
    if (item_ == Item::message) {
      events += numbered("response.output_text.done", at({{"text", text_}, {"logprobs", Json::array()}}));
      events += numbered("response.content_part.done", at({{"part", text_part(text_)}}));
    } else {
      events += numbered("response.reasoning_text.done", at({{"text", text_}}));
    }
    events +=
        numbered("response.output_item.done", {{"output_index", index_}, {"item", item(item_, text_, "completed")}});
    item_ = Item::none;
    text_.clear();
    ++index_;
    return events;
  }

  Item item_ = Item::none;
  std::string text_;  // of the open item
  int32_t index_ = 0;
  int64_t number_ = 0;
};

}  // namespace

std::unique_ptr<ReplyWriter> make_responses_writer(ReplyHead head) {
  return std::make_unique<ResponsesWriter>(std::move(head));
}

}  // namespace inferno::serve
