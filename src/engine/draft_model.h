// A second, smaller model that guesses what the first one will say: its own weights and cache on the same backend.
//
// It draws with a sequence's own settings, seed and positions, so that it guesses what would be drawn and not what is
// likeliest. It follows a sequence lazily: what it has not seen yet, the whole prompt at first, is computed in chunks
// before steps that have time for it, and pages of earlier prompts are found again.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "engine/step_cost.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"

namespace inferno {

class DraftModel {
 public:
  // An Error where the model cannot go with the first: another vocabulary, or states that cannot be taken back.
  static void check(const ModelFile& file, const ModelFile& first_file);

  // `positions` and `pages` are those of the first model's cache, `limits` those of its steps.
  DraftModel(Backend& backend, const ModelFile& file, DType kv_dtype, int32_t positions, int32_t pages,
             const StepLimits& limits, int32_t first_vocabulary, const OnProgress& on_progress);
  [[nodiscard]] static uint64_t page_bytes(const ModelFile& file, DType kv_dtype);

  [[nodiscard]] KvCache& cache() { return cache_; }
  // Of a step with so many tokens after `first`, as expected.
  [[nodiscard]] double seconds(int32_t first, int32_t tokens) const;
  // Whether it is as far as the text, but for a few tokens; else computes a chunk of what it lacks in about so many
  // seconds. False, too, when there are no pages left for it.
  [[nodiscard]] bool catch_up(Sequence& s, double seconds);
  // Guesses up to s->draft_wanted tokens for each, all of them in the same steps. Allocates nothing.
  void guess(std::span<Sequence* const> sequences);
  // The text is now what was accepted of it: what was computed of other guesses is forgotten.
  static void cut(Sequence& s, int32_t length) { s.draft_computed = std::min(s.draft_computed, length); }
  // Gives the pages of a sequence back; what they hold of its text is found by others.
  void leave(Sequence& s);

 private:
  void run_round();
  void begin(Sequence& s);

  Backend& backend_;
  Model model_;
  KvCache cache_;
  Decoder decoder_;
  int32_t first_vocabulary_;  // of the first model: a guess beyond it is none
  StepCost cost_;
  std::vector<SampleRequest> samples_;  // [max_sequences]
  std::vector<Sequence*> guessing_;     // those that go on
  std::vector<int32_t> found_pages_;    // [max_pages]
};

}  // namespace inferno
