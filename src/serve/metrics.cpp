#include "serve/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

namespace inferno::serve {
namespace {

void head(std::string& out, std::string_view name, std::string_view type, std::string_view help) {
  fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

template <typename Value>
void single(std::string& out, std::string_view name, std::string_view type, std::string_view help, Value value) {
  head(out, name, type, help);
  fmt::format_to(std::back_inserter(out), "{} {}\n", name, value);
}

// As a label's value.
std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string_view("\\n") : std::string_view(&c, 1);
  }
  return out;
}

}  // namespace

void add_models(std::string& out, const ModelCounts& models) {
  const auto each = [&](std::string_view name, std::string_view type, std::string_view help, auto value) {
    head(out, name, type, help);
    for (const ModelCount& model : models) {
      fmt::format_to(std::back_inserter(out), "{}{{model=\"{}\"}} {}\n", name, label_value(model.name), value(model));
    }
  };
  each("inferno_model_loaded", "gauge", "Whether the model is in memory.",
       [](const ModelCount& model) { return model.is_loaded ? 1 : 0; });
  each("inferno_model_memory_bytes", "gauge", "What the model takes when it is loaded.",
       [](const ModelCount& model) { return model.bytes; });
  each("inferno_model_loads_total", "counter", "Times it was loaded on demand.",
       [](const ModelCount& model) { return model.loads; });
  each("inferno_model_unloads_total", "counter", "Times it was unloaded.",
       [](const ModelCount& model) { return model.unloads; });
  each("inferno_model_load_failures_total", "counter", "Times it could not be loaded.",
       [](const ModelCount& model) { return model.failures; });
}

void Histogram::add(double seconds) {
  const auto bucket = std::ranges::lower_bound(kBounds, seconds) - kBounds.begin();
  if (static_cast<size_t>(bucket) < buckets_.size()) ++buckets_[static_cast<size_t>(bucket)];
  ++count_;
  sum_ += seconds;
}

void Histogram::add(const Histogram& other) {
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ += other.sum_;
}

void Histogram::write(std::string& out, std::string_view name, std::string_view help) const {
  head(out, name, "histogram", help);
  int64_t below = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    below += buckets_[i];
    fmt::format_to(std::back_inserter(out), "{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], below);
  }
  fmt::format_to(std::back_inserter(out), "{}_bucket{{le=\"+Inf\"}} {}\n{}_sum {}\n{}_count {}\n", name, count_, name,
                 sum_, name, count_);
}

std::string Metrics::text(const EngineStats& engine, const PageCounts& pages, const ProfileSource& profile) const {
  std::string out;
  head(out, "inferno_requests_total", "counter", "Answered HTTP requests.");
  for (const auto& [key, count] : answers) {
    fmt::format_to(std::back_inserter(out), "inferno_requests_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first,
                   key.second, count);
  }
  single(out, "inferno_requests_cancelled_total", "counter", "Completions whose client went away.", cancelled);
  single(out, "inferno_requests_turned_away_total", "counter", "Completions refused by a full queue.", turned_away);
  single(out, "inferno_requests_open", "gauge", "Completions accepted and not yet answered.", open);
  single(out, "inferno_connections", "gauge", "Open connections.", connections);
  single(out, "inferno_log_lines_lost_total", "counter", "Lines of the log that could not be written.", lost_lines);
  single(out, "inferno_sequences_running", "gauge", "Sequences that hold pages of the cache.", engine.running);
  single(out, "inferno_sequences_waiting", "gauge", "Sequences that wait to run.", engine.waiting);
  single(out, "inferno_prompt_tokens_total", "counter", "Prompt tokens computed.", engine.prompt_tokens);
  single(out, "inferno_reused_tokens_total", "counter", "Prompt tokens found in the cache.", engine.reused_tokens);
  single(out, "inferno_generated_tokens_total", "counter", "Tokens generated.", engine.generated_tokens);
  single(out, "inferno_drafted_tokens_total", "counter", "Tokens guessed ahead.", engine.drafted_tokens);
  single(out, "inferno_accepted_tokens_total", "counter", "Of those, tokens that were right.", engine.accepted_tokens);
  single(out, "inferno_preemptions_total", "counter", "Sequences whose pages were taken and recomputed.",
         engine.preemptions);
  single(out, "inferno_pages", "gauge", "Pages of the cache.", pages.total);
  single(out, "inferno_pages_used", "gauge", "Pages that sequences hold.", pages.used);
  single(out, "inferno_pages_cached", "gauge", "Pages that nobody holds and that may be found again.", pages.cached);
  single(out, "inferno_pages_evicted_total", "counter", "Cached pages that gave way.", pages.evictions);
  single(out, "inferno_steps_total", "counter", "Steps of the engine.", engine.steps);
  single(out, "inferno_step_time_error", "gauge", "Relative error of the predicted times of steps.", engine.cost_error);
  if (profile.prefill_share && profile.decode_share) {
    head(out, "inferno_share_of_limit", "gauge", "Speed of steps as a share of what the machine allows.");
    fmt::format_to(std::back_inserter(out), "inferno_share_of_limit{{phase=\"prefill\"}} {:.4f}\n",
                   profile.prefill_share());
    fmt::format_to(std::back_inserter(out), "inferno_share_of_limit{{phase=\"decode\"}} {:.4f}\n",
                   profile.decode_share());
  }
  first_token.write(out, "inferno_time_to_first_token_seconds", "From submission to the first token.");
  between_tokens.write(out, "inferno_time_between_tokens_seconds", "Between tokens of one text.");
  queue.write(out, "inferno_queue_seconds", "From submission to the first chunk of the prompt.");
  whole.write(out, "inferno_request_seconds", "From reading a completion request to the end of its answer.");
  return out;
}

}  // namespace inferno::serve
