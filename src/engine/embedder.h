// Texts to vectors, and pairs of texts to scores.
//
// Memory for the encoder is taken when the first text comes, and more when a longer one does. May be used from any
// thread; calls take turns with each other and with the scheduler's steps, one step of several texts at a time. On a
// CPU a text's vector does not depend on the texts beside it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/step_turn.h"
#include "model/encoder.h"

namespace inferno {

class Tokenizer;

struct EmbedSettings {
  Pooling pooling = Pooling::none;  // none: the model's own
  bool normalize = true;            // to unit length
  int32_t dimensions = 0;           // only the first ones, before normalizing; 0: all
};

// A text as the model takes it. Of a pair, `second` is where the second text begins.
struct EncoderText {
  std::vector<int32_t> ids;
  int32_t second = INT32_MAX;
};

class Embedder {
 public:
  // All of them outlive it. `rerank_template`: a pair as text, with {query} and {document}; empty: two texts.
  Embedder(Backend& backend, const Model& model, const Tokenizer* tokenizer, StepTurn& turn,
           std::string rerank_template);

  // Elements of a vector.
  [[nodiscard]] int32_t width() const;
  // What is used when no pooling is chosen; none: the model was made for text, or for scores of pairs, alone.
  [[nodiscard]] Pooling pooling() const;
  [[nodiscard]] bool scores_pairs() const { return model_.config().encoder.classes > 0; }
  [[nodiscard]] int32_t context() const { return model_.context(); }

  // The tokens of a text, with those that begin and end it. One that is too long is cut before them, or an Error.
  [[nodiscard]] EncoderText encode(std::string_view text, bool truncate) const;
  // The same of ids, which are taken as they are.
  [[nodiscard]] EncoderText encode(std::vector<int32_t> ids, bool truncate) const;
  [[nodiscard]] EncoderText encode_pair(std::string_view query, std::string_view document, bool truncate) const;

  // Asked before each step; true ends the call with an Error.
  using ShouldEnd = std::function<bool()>;
  // A vector per text, in order.
  [[nodiscard]] std::vector<std::vector<float>> embed(std::span<const EncoderText> texts, const EmbedSettings& settings,
                                                      const ShouldEnd& ends = {});
  // A score per pair, higher is better: what the model's last layer says; of two classes the share of the first.
  [[nodiscard]] std::vector<float> score(std::span<const EncoderText> pairs, const ShouldEnd& ends = {});
  // Makes the encoder now: what the backend cannot run is an Error here already.
  void prepare();

  // What was computed so far.
  [[nodiscard]] int64_t steps() const { return steps_; }
  [[nodiscard]] int64_t tokens() const { return tokens_; }

 private:
  void check(const EmbedSettings& settings) const;
  [[nodiscard]] bool ends_with_eos() const;
  void reserve(size_t longest);
  // Step by step: pools each text's rows and calls finish(first text, pooled [n, d]) for each step.
  template <typename Finish>
  void run(std::span<const EncoderText> texts, Pooling pooling, const ShouldEnd& ends, Finish finish);

  Backend& backend_;
  const Model& model_;
  const Tokenizer* tokenizer_;
  StepTurn& turn_;
  std::string rerank_template_;
  std::mutex mutex_;  // of the encoder
  std::unique_ptr<Encoder> encoder_;
  std::atomic<int64_t> steps_ = 0;
  std::atomic<int64_t> tokens_ = 0;
};

// How the file, or the family, wants a pair to be written; empty: as two texts.
[[nodiscard]] std::string rerank_template(const ModelFile& file, const ModelConfig& config);

// "mean", "cls" or "last"; an Error that lists them.
[[nodiscard]] Pooling pooling_from_name(std::string_view name);
[[nodiscard]] std::string_view pooling_name(Pooling pooling);

}  // namespace inferno
