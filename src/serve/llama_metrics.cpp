// What the server counts, by the names llama-server has for it.
#include <fmt/core.h>

#include <iterator>

#include "serve/metrics.h"

namespace inferno::serve {
namespace {

void add(std::string& out, std::string_view type, std::string_view name, std::string_view help, double value) {
  fmt::format_to(std::back_inserter(out), "# HELP llamacpp:{0} {1}\n# TYPE llamacpp:{0} {2}\nllamacpp:{0} {3}\n", name,
                 help, type, value);
}

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

}  // namespace

void add_llama_names(std::string& out, const Metrics& metrics, const EngineStats& engine) {
  const auto prompt = static_cast<double>(engine.prompt_tokens);
  const auto made = static_cast<double>(engine.generated_tokens);
  const auto steps = static_cast<double>(engine.steps);
  add(out, "counter", "prompt_tokens_total", "Prompt tokens computed.", prompt);
  add(out, "counter", "prompt_tokens_cached_total", "Prompt tokens reused.", static_cast<double>(engine.reused_tokens));
  add(out, "counter", "prompt_seconds_total", "Time of prompts.", metrics.prompt_seconds);
  add(out, "counter", "tokens_predicted_total", "Tokens generated.", made);
  add(out, "counter", "tokens_predicted_seconds_total", "Time of generation.", metrics.decode_seconds);
  add(out, "counter", "n_decode_total", "Steps of the engine.", steps);
  add(out, "counter", "n_tokens_max", "Tokens of the longest text so far.", static_cast<double>(metrics.longest));
  add(out, "counter", "spec_decode_num_draft_tokens_total", "Tokens guessed ahead.",
      static_cast<double>(engine.drafted_tokens));
  add(out, "counter", "spec_decode_num_accepted_tokens_total", "Of those, tokens that were right.",
      static_cast<double>(engine.accepted_tokens));
  add(out, "counter", "spec_decode_num_drafts_total", "Steps of one sequence with guesses.",
      static_cast<double>(engine.drafts));
  add(out, "gauge", "prompt_tokens_seconds", "Prompt tokens per second.", ratio(prompt, metrics.prompt_seconds));
  add(out, "gauge", "predicted_tokens_seconds", "Tokens generated per second.", ratio(made, metrics.decode_seconds));
  add(out, "gauge", "requests_processing", "Texts that are computed.", engine.running);
  add(out, "gauge", "requests_deferred", "Texts that wait.", engine.waiting);
  add(out, "gauge", "n_busy_slots_per_decode", "Generated tokens per step.", ratio(made, steps));
}

}  // namespace inferno::serve
