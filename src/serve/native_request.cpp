// llama-server's own POST /completion, with its defaults.
#include "serve/api_error.h"
#include "serve/dialect_requests.h"
#include "serve/request_fields.h"

namespace inferno::serve {
namespace {

Prompt prompt_of(const Json& prompt) {
  if (prompt.is_string()) return prompt.get<std::string>();
  if (!prompt.is_array()) fail_field("prompt", "is {}, must be a string or an array", kind_of(prompt));
  std::vector<int32_t> ids = ids_of(prompt, "prompt");
  if (ids.empty()) fail_field("prompt", "has no token; give at least one");
  return ids;
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

void parse_native(const Fields& fields, const CompletionLimits& limits, CompletionRequest& request) {
  refuse_samplers(fields);
  Request& settings = request.settings;
  SamplingSettings& sampling = settings.sampling;
  sampling.temperature = 0.8F;
  sampling.top_k = 40;
  sampling.top_p = 0.95F;
  sampling.min_p = 0.05F;
  sampling = sampling_of(fields, sampling, true);
  std::optional<int64_t> tokens = fields.integer("n_predict", -1, INT32_MAX);
  if (!tokens) tokens = fields.integer("max_tokens", -1, INT32_MAX);
  settings.max_new_tokens = static_cast<int32_t>(tokens.value_or(-1));
  settings.samples = static_cast<int32_t>(fields.integer("n_cmpl", 1, limits.choices).value_or(1));
  settings.stop_strings = stops_of(fields, "stop", limits);
  settings.bias = bias_of(fields);
  const int64_t probabilities = fields.integer("n_probs", 0, kMaxTopLogprobs).value_or(0);
  settings.top_logprobs = probabilities > 0 ? static_cast<int32_t>(probabilities) : -1;
  settings.reuse_prefix = fields.boolean("cache_prompt").value_or(true);
  settings.stop_at_end = !fields.boolean("ignore_eos").value_or(false);
  request.token_ids = fields.boolean("return_tokens").value_or(false);

  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) fail_field("prompt", "is missing");
  // An array of numbers is one prompt, one of texts or arrays several.
  const bool is_list = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!is_list) {
    request.prompts.push_back(prompt_of(*prompt));
    return;
  }
  if (prompt->size() > static_cast<size_t>(limits.choices)) {
    fail_field("prompt", "has {} texts, must have at most {}", prompt->size(), limits.choices);
  }
  for (const Json& item : *prompt) request.prompts.push_back(prompt_of(item));
}

}  // namespace inferno::serve
