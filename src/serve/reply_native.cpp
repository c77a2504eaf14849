// llama-server's own form.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "serve/reply.h"

namespace inferno::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string_view stop_type(StopReason reason) {
  switch (reason) {
    case StopReason::end_token:
    case StopReason::stop_token:
      return "eos";
    case StopReason::stop_string:
      return "word";
    default:
      return "limit";
  }
}

class NativeWriter final : public ReplyWriter {
 public:
  explicit NativeWriter(ReplyHead head)
      : ReplyWriter(std::move(head)), made_(static_cast<size_t>(request().choices())) {}

  // One object, or an array of them where several texts were asked for.
  [[nodiscard]] std::string whole(std::span<const Choice> choices, const Usage& usage) const override {
    if (choices.size() == 1) return dump(last(choices.front(), 0, usage, choices.front().text));
    OrderedJson all = OrderedJson::array();
    for (size_t i = 0; i < choices.size(); ++i) all.push_back(last(choices[i], i, usage, choices[i].text));
    return dump(all);
  }

  [[nodiscard]] std::string progress(int32_t choice, const PromptUpdate& prompt) override {
    OrderedJson body = {{"index", choice}, {"content", ""},         {"tokens", OrderedJson::array()},
                        {"stop", false},   {"tokens_predicted", 0}, {"tokens_evaluated", prompt.computed}};
    add_progress(body, prompt);
    return event(dump(body));
  }

  [[nodiscard]] std::string token(const Delta& delta) override {
    if (delta.text.empty() && delta.logprobs.empty()) return {};
    auto& made = made_[static_cast<size_t>(delta.choice)];
    if (delta.id >= 0) ++made;
    OrderedJson body = {{"index", delta.choice},
                        {"content", delta.text},
                        {"tokens", delta.id >= 0 ? OrderedJson::array({delta.id}) : OrderedJson::array()},
                        {"stop", false},
                        {"id_slot", -1},
                        {"tokens_predicted", made},
                        {"tokens_evaluated", head().prompt_tokens}};
    if (request().logprobs()) body["completion_probabilities"] = probabilities({&delta, 1});
    return event(dump(body));
  }

  [[nodiscard]] std::string ending(std::span<const Choice> choices, const Usage& usage) override {
    std::string events;
    for (size_t i = 0; i < choices.size(); ++i) events += event(dump(last(choices[i], i, usage, "")));
    return events;
  }

  [[nodiscard]] std::string failure(const ApiError& error) const override { return event(error_body(error)); }

 private:
  [[nodiscard]] OrderedJson settings() const {
    const Request& asked = request().settings;
    const SamplingSettings& s = asked.sampling;
    return {{"seed", s.seed},
            {"temperature", rounded(s.temperature)},
            {"top_k", s.top_k},
            {"top_p", rounded(s.top_p)},
            {"min_p", rounded(s.min_p)},
            {"repeat_last_n", s.penalty_window},
            {"repeat_penalty", rounded(s.repeat_penalty)},
            {"presence_penalty", rounded(s.presence_penalty)},
            {"frequency_penalty", rounded(s.frequency_penalty)},
            {"stop", asked.stop_strings},
            {"logit_bias", bias()},
            {"max_tokens", asked.max_new_tokens},
            {"n_predict", asked.max_new_tokens},
            {"ignore_eos", !asked.stop_at_end},
            {"stream", request().stream},
            {"n_probs", std::max(0, asked.top_logprobs)}};
  }

  [[nodiscard]] OrderedJson last(const Choice& choice, size_t index, const Usage& usage,
                                 std::string_view content) const {
    const auto tokens = static_cast<int64_t>(choice.ids.size());
    OrderedJson body = {
        {"index", index},
        {"content", content},
        {"tokens", request().token_ids && !request().stream ? OrderedJson(choice.ids) : OrderedJson::array()},
        {"id_slot", -1},
        {"stop", true},
        {"model", head().model},
        {"tokens_predicted", tokens},
        {"tokens_evaluated", head().prompt_tokens},
        {"generation_settings", settings()},
        {"has_new_line", choice.text.find('\n') != std::string::npos},
        {"truncated", choice.reason == StopReason::context_full},
        {"stop_type", stop_type(choice.reason)},
        {"stopping_word", choice.stop},
        {"tokens_cached", head().prompt_tokens + tokens},
        {"timings", timings_json(usage)},
        {"reuse_end", to_string(usage.reuse_end)}};
    const size_t prompt = index / static_cast<size_t>(request().settings.samples);
    if (prompt < head().prompts.size()) body["prompt"] = head().prompts[prompt];
    if (request().logprobs() && !request().stream) body["completion_probabilities"] = probabilities(choice.tokens);
    return request().response_fields.empty() ? body : chosen(body);
  }

  // The fields that were asked for, "a/b" for b in a; those that are not there are left out.
  [[nodiscard]] OrderedJson chosen(const OrderedJson& body) const {
    OrderedJson out = OrderedJson::object();
    for (const std::string& path : request().response_fields) {
      const OrderedJson* value = &body;
      for (std::string_view rest = path; value != nullptr && !rest.empty();) {
        const std::string name(rest.substr(0, rest.find('/')));
        rest.remove_prefix(std::min(name.size() + 1, rest.size()));
        const auto found = value->is_object() ? value->find(name) : value->end();
        value = found == value->end() ? nullptr : &*found;
      }
      if (value != nullptr) out[path] = *value;
    }
    return out;
  }

  // Tokens that cannot be drawn have the bias null.
  [[nodiscard]] OrderedJson bias() const {
    OrderedJson all = OrderedJson::array();
    for (const LogitBias& entry : request().settings.bias) {
      all.push_back({{"token", entry.id}, {"bias", rounded(entry.bias)}});
    }
    if (request().settings.stop_at_end) return all;
    for (const int32_t id : head().end_tokens) all.push_back({{"token", id}, {"bias", nullptr}});
    return all;
  }

  [[nodiscard]] OrderedJson probability(const TokenLogprob& token) const {
    const std::string text = text_of(token.id);
    OrderedJson bytes = OrderedJson::array();
    for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
    return {{"id", token.id}, {"token", text}, {"bytes", std::move(bytes)}, {"logprob", token.logprob}};
  }

  [[nodiscard]] OrderedJson probabilities(std::span<const Delta> tokens) const {
    OrderedJson all = OrderedJson::array();
    for (const Delta& token : tokens) {
      if (token.logprobs.empty()) continue;
      OrderedJson entry = probability(token.logprobs.front());
      entry["top_logprobs"] = OrderedJson::array();
      for (const TokenLogprob& top : std::span(token.logprobs).subspan(1))
        entry["top_logprobs"].push_back(probability(top));
      all.push_back(std::move(entry));
    }
    return all;
  }

  std::vector<int64_t> made_;  // [choice] tokens written
};

}  // namespace

std::unique_ptr<ReplyWriter> make_native_writer(ReplyHead head) {
  return std::make_unique<NativeWriter>(std::move(head));
}

}  // namespace inferno::serve
