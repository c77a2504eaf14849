// Ollama's form: one JSON object per line.
#include <nlohmann/json.hpp>

#include "serve/reply.h"
#include "serve/request_log.h"

namespace inferno::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

int64_t nanoseconds(double ms) {
  return static_cast<int64_t>(ms * 1e6);
}

class OllamaWriter final : public ReplyWriter {
 public:
  using ReplyWriter::ReplyWriter;

  [[nodiscard]] std::string_view stream_type() const override { return "application/x-ndjson"; }

  [[nodiscard]] std::string whole(std::span<const Choice> choices, const Usage& usage) const override {
    if (choices.empty()) {
      OrderedJson body = line("", "");
      body["done"] = true;
      body["done_reason"] = "load";
      return dump(body);
    }
    const Choice& choice = choices.front();
    OrderedJson body = line(choice.text, choice.thinking);
    add_calls(body, choice.calls);
    finish(body, choice, usage);
    return dump(body);
  }

  [[nodiscard]] std::string token(const Delta& delta) override {
    if (delta.text.empty() && delta.thinking.empty()) return {};
    OrderedJson body = line(delta.text, delta.thinking);
    body["done"] = false;
    return dump(body) + "\n";
  }

  [[nodiscard]] std::string ending(std::span<const Choice> choices, const Usage& usage) override {
    // Calls are given out whole, all at once.
    std::string calls;
    if (!choices.front().calls.empty()) {
      OrderedJson body = line("", "");
      add_calls(body, choices.front().calls);
      body["done"] = false;
      calls = dump(body) + "\n";
    }
    OrderedJson body = line("", "");
    finish(body, choices.front(), usage);
    return calls + dump(body) + "\n";
  }

  [[nodiscard]] std::string failure(const ApiError& error) const override {
    return error_body(error, ErrorForm::ollama) + "\n";
  }

 private:
  [[nodiscard]] OrderedJson line(std::string_view text, std::string_view thinking) const {
    OrderedJson body = {{"model", head().model}, {"created_at", utc_time(head().created)}};
    if (request().dialect == Dialect::ollama_chat) {
      body["message"] = {{"role", "assistant"}, {"content", text}};
      if (!thinking.empty()) body["message"]["thinking"] = thinking;
    } else {
      body["response"] = text;
      if (!thinking.empty()) body["thinking"] = thinking;
    }
    return body;
  }

  static void add_calls(OrderedJson& body, std::span<const ToolCall> calls) {
    for (const ToolCall& call : calls) {
      OrderedJson arguments = OrderedJson::parse(call.arguments, nullptr, false);
      if (!arguments.is_object()) arguments = OrderedJson::object();  // the answer was cut
      body["message"]["tool_calls"].push_back(
          {{"id", call.id}, {"function", {{"name", call.name}, {"arguments", std::move(arguments)}}}});
    }
  }

  static void finish(OrderedJson& body, const Choice& choice, const Usage& usage) {
    body["done"] = true;
    body["done_reason"] = finish_reason(choice.reason);
    body["total_duration"] = nanoseconds(usage.total_ms);
    body["load_duration"] = 0;
    body["prompt_eval_count"] = usage.prompt_tokens;
    body["prompt_eval_duration"] = nanoseconds(usage.prefill_ms);
    body["eval_count"] = usage.generated_tokens;
    body["eval_duration"] = nanoseconds(usage.decode_ms);
    body["reused_count"] = usage.cached_tokens;
    body["reuse_end"] = to_string(usage.reuse_end);
    body["queue_duration"] = nanoseconds(usage.queue_ms);
  }
};

}  // namespace

std::unique_ptr<ReplyWriter> make_ollama_writer(ReplyHead head) {
  return std::make_unique<OllamaWriter>(std::move(head));
}

}  // namespace inferno::serve
