// A transformer with random weights, straight on the seam: what tests and benchmarks run on a backend without a model
// file. The ops and their order are the decoder's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/sampling_batch.h"

namespace inferno {

struct SeamConfig {
  int32_t layers = 2;
  int32_t width = 256;
  int32_t ffn = 512;
  int32_t q_heads = 4;
  int32_t kv_heads = 2;
  int32_t head_dim = 64;
  int32_t vocabulary = 1000;
  DType weight = DType::bf16;
  DType value_down = DType::bf16;  // of V and down, in every second layer
  DType head = DType::bf16;        // of the embedding, which is the output head too
  DType kv = DType::bf16;
  int32_t page_size = 64;
  int32_t context = 512;
  int32_t max_tokens = 512;
  int32_t max_sequences = 1;
  bool quick = false;  // weights of random bytes rather than of quantized random values: for large models
};

class SeamModel {
 public:
  SeamModel(Backend& backend, const SeamConfig& config);
  ~SeamModel();

  // Runs `tokens` as the next positions of a sequence; a token is drawn from the last position if `sample`.
  void prefill(int32_t sequence, std::span<const int32_t> tokens, bool sample);
  // One token for each of the first `sequences` sequences: the one drawn last.
  void decode(int32_t sequences);
  // Takes over the other model's drawn tokens.
  void follow(const SeamModel& other) { last_ = other.previous_; }
  void set_sampling(const SamplingSettings& settings) { settings_ = settings; }

  // Of the last step that sampled, one row per sequence in it.
  [[nodiscard]] const std::vector<int32_t>& sampled() const { return sampled_; }
  [[nodiscard]] std::vector<float> logits();
  [[nodiscard]] uint64_t weight_bytes() const;
  [[nodiscard]] int32_t length(int32_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  void reset();
  [[nodiscard]] static std::unique_ptr<Weight> random_matrix(Backend& backend, DType dtype, int64_t rows, int64_t cols);

 private:
  struct Layer;
  void run_step(bool sample);
  void record(const StepBatch& batch, bool sample);
  void plan();
  [[nodiscard]] std::unique_ptr<Weight> matrix(DType dtype, int64_t rows, int64_t cols, WeightUse uses);
  [[nodiscard]] std::unique_ptr<Weight> vector(int64_t n);
  [[nodiscard]] KvLayerView cache(int32_t layer) const;

  Backend& backend_;
  SeamConfig config_;
  uint32_t seed_ = 1;
  std::vector<Layer> layers_;
  std::unique_ptr<Weight> embedding_, output_norm_;
  HostBatch batch_;
  HostSampleBatch samples_;
  Buffer batch_memory_, x_, q_, attended_, logits_, requests_, results_, rope_, kv_;
  std::vector<int32_t> lengths_, sampled_;
  std::vector<int32_t> last_;      // drawn last, per sequence
  std::vector<int32_t> previous_;  // what the last decode step was fed
  SamplingSettings settings_;
};

}  // namespace inferno
