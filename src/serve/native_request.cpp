// llama-server's own POST /completion, with its defaults.
#include <algorithm>

#include "serve/api_error.h"
#include "serve/dialect_requests.h"
#include "serve/request_fields.h"

namespace inferno::serve {
namespace {

constexpr size_t kMaxResponseFields = 64;

Prompt prompt_of(const Json& prompt) {
  if (prompt.is_string()) return prompt.get<std::string>();
  if (prompt.is_object()) {
    const Fields fields(prompt, "prompt.");
    if (fields.find("multimodal_data") != nullptr) {
      fail_field("prompt.multimodal_data", "cannot be read; this model reads text alone");
    }
    const std::string* text = fields.string("prompt_string");
    if (text == nullptr) fail_field("prompt.prompt_string", "is missing");
    return *text;
  }
  if (!prompt.is_array()) fail_field("prompt", "is {}, must be a string or an array", kind_of(prompt));
  std::vector<int32_t> ids = ids_of(prompt, "prompt");
  if (ids.empty()) fail_field("prompt", "has no token; give at least one");
  return ids;
}

bool is_mixed(const Json& prompt) {
  const auto count = [&](auto is) { return std::ranges::count_if(prompt, is); };
  return prompt.is_array() && count([](const Json& part) { return part.is_string(); }) > 0 &&
         count([](const Json& part) { return part.is_number(); }) > 0;
}

std::vector<PromptPart> parts_of(const Json& prompt) {
  std::vector<PromptPart> parts;
  for (const Json& item : prompt) {
    if (item.is_string()) {
      if (!item.get_ref<const std::string&>().empty()) parts.push_back({.text = item.get<std::string>()});
      continue;
    }
    if (parts.empty() || !parts.back().text.empty()) parts.emplace_back();
    const std::vector<int32_t> id = ids_of(Json::array({item}), "prompt");
    parts.back().ids.push_back(id.front());
  }
  return parts;
}

void add_prompt(const Json& prompt, CompletionRequest& request) {
  const bool mixed = is_mixed(prompt);
  request.parts.push_back(mixed ? parts_of(prompt) : std::vector<PromptPart>());
  request.prompts.push_back(mixed ? Prompt(std::vector<int32_t>()) : prompt_of(prompt));
}

std::vector<std::string> response_fields_of(const Fields& fields) {
  const Json* given = fields.array("response_fields");
  if (given == nullptr) return {};
  if (given->size() > kMaxResponseFields) fail_field("response_fields", "must have at most {}", kMaxResponseFields);
  std::vector<std::string> names;
  for (const Json& item : *given) {
    if (!item.is_string()) fail_field("response_fields", "holds {}, must hold strings", kind_of(item));
    names.push_back(item.get<std::string>());
  }
  return names;
}

// Ways of drawing tokens that are not there; their neutral values are.
void refuse_samplers(const Fields& fields) {
  if (fields.integer("mirostat", 0, 2).value_or(0) != 0) fail_unsupported("mirostat");
  for (const char* name : {"dry_multiplier", "xtc_probability", "dynatemp_range"}) {
    if (fields.number(name, 0, 1e6).value_or(0) != 0) fail_unsupported(name);
  }
  if (fields.number("typical_p", 0, 1).value_or(1) != 1) fail_unsupported("typical_p");
}

}  // namespace

void speculation_of(const Fields& fields, CompletionRequest& request) {
  request.lookup = fields.boolean("lookup");
  const int64_t most = fields.integer("speculative.n_max", 0, INT32_MAX).value_or(kMostDraft);
  request.settings.max_draft = static_cast<int32_t>(std::min<int64_t>(most, kMostDraft));
}

SamplingSettings native_sampling() {
  return {.temperature = 0.8F, .top_k = 40, .top_p = 0.95F, .min_p = 0.05F};
}

void parse_native(const Fields& fields, const CompletionLimits& limits, CompletionRequest& request) {
  refuse_samplers(fields);
  Request& settings = request.settings;
  SamplingSettings& sampling = settings.sampling;
  SamplingSettings usual = native_sampling();
  usual.seed = sampling.seed;
  sampling = sampling_of(fields, usual, true);
  std::optional<int64_t> tokens = fields.integer("n_predict", -1, INT32_MAX);
  if (!tokens) tokens = fields.integer("max_tokens", -1, INT32_MAX);
  settings.max_new_tokens = static_cast<int32_t>(tokens.value_or(-1));
  settings.samples = static_cast<int32_t>(fields.integer("n_cmpl", 1, limits.choices).value_or(1));
  settings.stop_strings = stops_of(fields, "stop", limits);
  settings.bias = bias_of(fields, &request.text_bias);
  const int64_t probabilities = fields.integer("n_probs", 0, kMaxTopLogprobs).value_or(0);
  settings.top_logprobs = probabilities > 0 ? static_cast<int32_t>(probabilities) : -1;
  // Those of `n_probs` are the model's, before anything is cut off.
  if (probabilities > 0 && fields.boolean("post_sampling_probs").value_or(false))
    fail_unsupported("post_sampling_probs");
  settings.reuse_prefix = fields.boolean("cache_prompt").value_or(true);
  request.show_progress = fields.boolean("return_progress").value_or(false);
  settings.stop_at_end = !fields.boolean("ignore_eos").value_or(false);
  speculation_of(fields, request);
  request.token_ids = fields.boolean("return_tokens").value_or(false);
  request.response_fields = response_fields_of(fields);
  request.show_prompt = request.show_prompt || std::ranges::count(request.response_fields, "prompt") > 0;

  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) fail_field("prompt", "is missing");
  // An array with numbers is one prompt, one of texts or arrays several.
  const bool is_list = prompt->is_array() && !prompt->empty() && !prompt->front().is_number() && !is_mixed(*prompt);
  if (!is_list) {
    add_prompt(*prompt, request);
    return;
  }
  if (prompt->size() > static_cast<size_t>(limits.choices)) {
    fail_field("prompt", "has {} texts, must have at most {}", prompt->size(), limits.choices);
  }
  for (const Json& item : *prompt) add_prompt(item, request);
}

}  // namespace inferno::serve
