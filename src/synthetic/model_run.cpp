#include "synthetic/model_run.h"

#include <algorithm>

#include "base/error.h"

namespace inferno {
namespace {

KvConfig kv_config(const ModelConfig& config, const RunLimits& limits) {
  return {.layers = cache_layers(config),
          .dtype = limits.kv,
          .max_positions = limits.context,
          .pages = KvCache::pages_for(limits.context) * limits.max_sequences,
          .state_slots = limits.max_sequences};
}

StepLimits step_limits(const RunLimits& limits) {
  return {.max_tokens = std::max(std::min(limits.max_tokens, limits.context), limits.max_sequences),
          .max_sequences = limits.max_sequences,
          .max_logit_rows = limits.max_sequences};
}

}  // namespace

ModelRun::ModelRun(Backend& backend, const ModelFile& file, const RunLimits& limits, const RankLink& ranks)
    : limits_(limits),
      model_(backend, file, read_config(file), limits.context),
      cache_(backend, kv_config(model_.config(), limits)),
      decoder_(backend, model_, cache_, step_limits(limits), ranks),
      last_(static_cast<size_t>(limits.max_sequences)),
      fed_(last_.size()) {
  requests_.reserve(last_.size());
  for (int32_t s = 0; s < limits.max_sequences; ++s) sequences_.push_back(std::make_unique<Sequence>(cache_));
}

void ModelRun::add(int32_t sequence, std::span<const int32_t> tokens, bool sample) {
  Sequence& s = *sequences_[static_cast<size_t>(sequence)];
  const int32_t first = s.length;
  s.length += static_cast<int32_t>(tokens.size());
  INFERNO_CHECK(s.kv.resize(s.length));
  decoder_.add(s.kv, first, tokens, sample ? 1 : 0);
  if (sample) requests_.push_back({.settings = settings_, .sample_index = sequence, .position = s.length});
}

void ModelRun::run() {
  decoder_.run(requests_);
  requests_.clear();
}

void ModelRun::prefill(int32_t sequence, std::span<const int32_t> tokens, bool sample) {
  decoder_.clear();
  add(sequence, tokens, sample);
  run();
  if (sample) last_[static_cast<size_t>(sequence)] = decoder_.sampled()[0];
}

void ModelRun::decode(int32_t sequences) {
  decode_beside(sequences, sequences, {});
}

void ModelRun::decode_beside(int32_t sequences, int32_t other, std::span<const int32_t> tokens) {
  decoder_.clear();
  fed_ = last_;
  for (int32_t s = 0; s < sequences; ++s) add(s, std::span(last_).subspan(static_cast<size_t>(s), 1), true);
  if (!tokens.empty()) add(other, tokens, false);
  run();
  std::ranges::copy(decoder_.sampled(), last_.begin());
}

void ModelRun::reset() {
  for (const auto& sequence : sequences_) {
    sequence->kv.clear();
    sequence->length = 0;
  }
}

std::vector<float> ModelRun::logits() {
  std::vector<float> rows(static_cast<size_t>(decoder_.logit_rows()) * static_cast<size_t>(model_.config().vocabulary));
  decoder_.download_logits(rows);
  return rows;
}

}  // namespace inferno
