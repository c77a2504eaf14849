// What the engines of all models did, together.
#include <algorithm>

#include "serve/models.h"

namespace inferno::serve {
namespace {

void add(EngineStats& sum, const EngineStats& one) {
  sum.steps += one.steps;
  sum.prompt_tokens += one.prompt_tokens;
  sum.reused_tokens += one.reused_tokens;
  sum.generated_tokens += one.generated_tokens;
  sum.drafts += one.drafts;
  sum.drafted_tokens += one.drafted_tokens;
  sum.accepted_tokens += one.accepted_tokens;
  sum.finished_requests += one.finished_requests;
  sum.preemptions += one.preemptions;
  sum.running += one.running;
  sum.waiting += one.waiting;
  sum.cost_error = std::max(sum.cost_error, one.cost_error);
}

}  // namespace

// Of an engine that goes.
void Models::keep_stats(Engine& engine) {
  EngineStats last = engine.stats();
  last.cost_error = 0;
  add(past_, last);
  if (engine.makes_text()) past_evictions_ += engine.scheduler().pages().evictions;
}

EngineStats Models::stats() {
  EngineStats sum = past_;
  for (ServedModel& model : all_) {
    const Engine* engine = engine_of(model);
    if (engine != nullptr) add(sum, engine->stats());
  }
  return sum;
}

PageCounts Models::pages() {
  PageCounts sum{.evictions = past_evictions_};
  for (ServedModel& model : all_) {
    Engine* engine = engine_of(model);
    if (engine == nullptr || !engine->makes_text()) continue;
    const PageCounts one = engine->scheduler().pages();
    sum.total += one.total;
    sum.used += one.used;
    sum.cached += one.cached;
    sum.evictions += one.evictions;
  }
  return sum;
}

}  // namespace inferno::serve
