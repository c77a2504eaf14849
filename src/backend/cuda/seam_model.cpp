#include "backend/cuda/seam_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "base/checked.h"
#include "quant/quant.h"
#include "tensor/half.h"

namespace inferno {
namespace {

constexpr size_t kHistoryBytes = kSampleHistory * sizeof(int32_t);

// Normal values of deviation 1 / sqrt(cols), quantized row by row.
class RandomRows final : public WeightSource {
 public:
  RandomRows(DType dtype, const Shape& shape, uint32_t seed, float mean, bool quick)
      : dtype_(dtype), shape_(shape), seed_(seed), mean_(mean), quick_(quick) {}
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] DType dtype() const override { return dtype_; }
  [[nodiscard]] const Shape& shape() const override { return shape_; }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    const int64_t row = row_bytes(dtype_, shape_.cols());
    const auto first = static_cast<int64_t>(offset) / row;
    const auto count = static_cast<int64_t>(out.size()) / row;
    // Quick: a few different rows over and over.
    constexpr int64_t kDistinct = 61;
    for (int64_t r = 0; r < count; ++r) {
      std::byte* to = out.data() + r * row;
      if (quick_ && r >= kDistinct) {
        std::memcpy(to, to - kDistinct * row, static_cast<size_t>(row));
      } else {
        make_row(first + r, to);
      }
    }
  }

 private:
  void make_row(int64_t index, std::byte* to) const {
    const int64_t cols = shape_.cols();
    std::minstd_rand random(seed_ * 7919U + static_cast<uint32_t>(index) * 104729U + 1U);
    std::vector<float> values(static_cast<size_t>(cols));
    const float deviation = mean_ == 0 ? 1.0F / std::sqrt(static_cast<float>(cols)) : 0.1F;
    for (float& v : values) {  // the sum of four uniform values is normal enough
      float sum = 0;
      for (int i = 0; i < 4; ++i) sum += static_cast<float>(random() % 65536) / 65536.0F - 0.5F;
      v = mean_ + sum * deviation * 1.7320508F;
    }
    quantize_row(dtype_, values.data(), to, cols);
  }

  std::string name_ = "random";
  DType dtype_;
  Shape shape_;
  uint32_t seed_;
  float mean_;
  bool quick_;
};

size_t matrix_bytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(rows * cols) * sizeof(float);
}

int32_t pages_per_sequence(const SeamConfig& c) {
  return static_cast<int32_t>(ceil_div(c.context, c.page_size));
}

BatchCapacity capacity_of(const SeamConfig& c) {
  return {.max_tokens = c.max_tokens,
          .max_sequences = c.max_sequences,
          .max_logit_rows = c.max_sequences,
          .max_pages = pages_per_sequence(c)};
}

}  // namespace

struct SeamModel::Layer {
  std::unique_ptr<Weight> attn_norm, wq, wk, wv, q_norm, k_norm, wo, ffn_norm, gate, up, down;
};

SeamModel::~SeamModel() = default;

std::unique_ptr<Weight> SeamModel::matrix(DType dtype, int64_t rows, int64_t cols, WeightUse uses) {
  return backend_.load_weight(RandomRows(dtype, Shape(rows, cols), seed_++, 0, config_.quick), uses);
}
std::unique_ptr<Weight> SeamModel::vector(int64_t n) {
  return backend_.load_weight(RandomRows(DType::f32, Shape(n), seed_++, 1, false), WeightUse::vector);
}

SeamModel::SeamModel(Backend& backend, const SeamConfig& c) : backend_(backend), config_(c), batch_(capacity_of(c)) {
  const int64_t q = int64_t{c.q_heads} * c.head_dim;
  const int64_t kv = int64_t{c.kv_heads} * c.head_dim;
  layers_.resize(static_cast<size_t>(c.layers));
  for (int32_t i = 0; i < c.layers; ++i) {
    Layer& layer = layers_[static_cast<size_t>(i)];
    const DType special = i % 2 == 0 ? c.value_down : c.weight;
    layer.attn_norm = vector(c.width);
    layer.wq = matrix(c.weight, q, c.width, WeightUse::matmul);
    layer.wk = matrix(c.weight, kv, c.width, WeightUse::matmul);
    layer.wv = matrix(special, kv, c.width, WeightUse::matmul);
    layer.q_norm = vector(c.head_dim);
    layer.k_norm = vector(c.head_dim);
    layer.wo = matrix(c.weight, c.width, q, WeightUse::matmul);
    layer.ffn_norm = vector(c.width);
    layer.gate = matrix(c.weight, c.ffn, c.width, WeightUse::matmul);
    layer.up = matrix(c.weight, c.ffn, c.width, WeightUse::matmul);
    layer.down = matrix(special, c.width, c.ffn, WeightUse::matmul);
  }
  embedding_ = matrix(c.head, c.vocabulary, c.width, WeightUse::matmul | WeightUse::gather);
  output_norm_ = vector(c.width);

  batch_memory_ = backend.allocate(batch_.block().size() * sizeof(int32_t));
  x_ = backend.allocate(matrix_bytes(c.max_tokens, c.width));
  q_ = backend.allocate(matrix_bytes(c.max_tokens, q));
  attended_ = backend.allocate(matrix_bytes(c.max_tokens, q));
  logits_ = backend.allocate(matrix_bytes(c.max_sequences, c.vocabulary));
  const auto rows = static_cast<size_t>(c.max_sequences);
  requests_ = backend.allocate(rows * (sizeof(SampleParams) + kHistoryBytes));
  request_bytes_.resize(rows * (sizeof(SampleParams) + kHistoryBytes));
  sampled_memory_ = backend.allocate(rows * sizeof(int32_t));
  const auto page_bytes = static_cast<size_t>(cache(0).page_bytes());
  kv_ = backend.allocate_cache(
      0, 2 * static_cast<size_t>(c.layers) * rows * static_cast<size_t>(pages_per_sequence(c)) * page_bytes);
  std::vector<float> table(static_cast<size_t>(c.context) * static_cast<size_t>(c.head_dim));
  for (int32_t p = 0; p < c.context; ++p) {
    for (int32_t i = 0; i < c.head_dim / 2; ++i) {
      const double angle = p * std::pow(1e6, -2.0 * i / c.head_dim);
      float* pair = table.data() + (int64_t{p} * c.head_dim / 2 + i) * 2;
      pair[0] = static_cast<float>(std::cos(angle));
      pair[1] = static_cast<float>(std::sin(angle));
    }
  }
  rope_ = backend.allocate(table.size() * sizeof(float));
  backend.upload(rope_.data(), table.data(), table.size() * sizeof(float));
  lengths_.resize(rows);
  last_.resize(rows);
  plan();
}

// The largest steps there can be: one sequence's prompt, and one token of every sequence.
void SeamModel::plan() {
  const std::vector<int32_t> pages(static_cast<size_t>(pages_per_sequence(config_)), 0);
  const auto page_count = static_cast<int32_t>(pages.size());
  for (const bool prompt : {true, false}) {
    const int32_t sequences = prompt ? 1 : config_.max_sequences;
    const int32_t tokens = prompt ? std::min(config_.max_tokens, config_.context) : 1;
    batch_.clear();
    for (int32_t s = 0; s < sequences; ++s) {
      batch_.begin_sequence(config_.context, pages.data(), page_count);
      for (int32_t i = 0; i < tokens; ++i) batch_.add_token(0, config_.context - tokens + i, 0, i == tokens - 1);
    }
    backend_.upload(batch_memory_.data(), batch_.block().data(), batch_.block().size() * sizeof(int32_t));
    backend_.begin_step(StepMode::plan);
    record(batch_.view(static_cast<const int32_t*>(batch_memory_.data())), true);
    backend_.end_step();
  }
  batch_.clear();
}

std::unique_ptr<Weight> SeamModel::random_matrix(Backend& backend, DType dtype, int64_t rows, int64_t cols) {
  return backend.load_weight(RandomRows(dtype, Shape(rows, cols), 1, 0, false), WeightUse::matmul);
}

void SeamModel::reset() {
  std::fill(lengths_.begin(), lengths_.end(), 0);
}

uint64_t SeamModel::weight_bytes() const {
  uint64_t total = embedding_->bytes();
  for (const Layer& l : layers_) {
    for (const auto* w : {&l.wq, &l.wk, &l.wv, &l.wo, &l.gate, &l.up, &l.down}) total += (*w)->bytes();
  }
  return total;
}

KvLayerView SeamModel::cache(int32_t layer) const {
  const SeamConfig& c = config_;
  KvLayerView view{.pages = c.max_sequences * pages_per_sequence(c),
                   .page_size = c.page_size,
                   .kv_heads = c.kv_heads,
                   .head_dim = c.head_dim,
                   .dtype = c.kv};
  const int64_t bytes = view.pages * view.page_bytes();
  view.k = static_cast<char*>(kv_.data()) + 2 * layer * bytes;
  view.v = static_cast<char*>(view.k) + bytes;
  return view;
}

void SeamModel::prefill(int32_t sequence, std::span<const int32_t> tokens, bool sample) {
  // Pages of the sequences are interleaved, so that no block table is the identity.
  const int32_t page_count = pages_per_sequence(config_);
  std::vector<int32_t> pages(static_cast<size_t>(page_count));
  for (int32_t p = 0; p < page_count; ++p) {
    pages[static_cast<size_t>(p)] = (page_count - 1 - p) * config_.max_sequences + sequence;
  }
  int32_t& length = lengths_[static_cast<size_t>(sequence)];
  const auto count = static_cast<int32_t>(tokens.size());
  batch_.begin_sequence(length + count, pages.data(), page_count);
  for (int32_t i = 0; i < count; ++i) {
    const int32_t position = length + i;
    const int32_t slot =
        pages[static_cast<size_t>(position / config_.page_size)] * config_.page_size + position % config_.page_size;
    batch_.add_token(tokens[static_cast<size_t>(i)], position, slot, sample && i == count - 1);
  }
  length += count;
  run_step(sample);
  if (sample) last_[static_cast<size_t>(sequence)] = sampled_[0];
}

void SeamModel::decode(int32_t sequences) {
  previous_ = last_;
  const int32_t page_count = pages_per_sequence(config_);
  std::vector<int32_t> pages(static_cast<size_t>(page_count));
  for (int32_t s = 0; s < sequences; ++s) {
    for (int32_t p = 0; p < page_count; ++p) {
      pages[static_cast<size_t>(p)] = (page_count - 1 - p) * config_.max_sequences + s;
    }
    const int32_t position = lengths_[static_cast<size_t>(s)]++;
    batch_.begin_sequence(position + 1, pages.data(), page_count);
    batch_.add_token(
        last_[static_cast<size_t>(s)], position,
        pages[static_cast<size_t>(position / config_.page_size)] * config_.page_size + position % config_.page_size,
        true);
  }
  run_step(true);
  std::copy_n(sampled_.begin(), sequences, last_.begin());
}

void SeamModel::run_step(bool sample) {
  const auto rows = static_cast<size_t>(batch_.logit_rows());
  backend_.upload(batch_memory_.data(), batch_.block().data(), batch_.block().size() * sizeof(int32_t));
  if (sample) {
    for (size_t i = 0; i < rows; ++i) {
      SampleParams params = params_;
      params.sequence = static_cast<int32_t>(i);
      params.position = lengths_[i];
      std::memcpy(request_bytes_.data() + i * sizeof params, &params, sizeof params);
    }
    backend_.upload(requests_.data(), request_bytes_.data(), request_bytes_.size());
  }
  backend_.begin_step(StepMode::run);
  record(batch_.view(static_cast<const int32_t*>(batch_memory_.data())), sample);
  backend_.end_step();
  if (sample) {
    sampled_.resize(rows);
    backend_.download(sampled_.data(), sampled_memory_.data(), rows * sizeof(int32_t));
  }
  batch_.clear();
}

void SeamModel::record(const StepBatch& batch, bool sample) {
  const SeamConfig& c = config_;
  const int64_t tokens = batch.tokens;
  const int64_t q_width = int64_t{c.q_heads} * c.head_dim;
  constexpr float kEps = 1e-6F;
  const Tensor x{x_.data(), Shape(tokens, c.width)};
  const Tensor q{q_.data(), Shape(tokens, q_width)};
  const Tensor attended{attended_.data(), Shape(tokens, q_width)};
  const RopeParams rope{.table = {rope_.data(), Shape(c.context, c.head_dim / 2, 2)}, .rotated_dims = c.head_dim};
  const float scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
  backend_.embed(
      {.table = embedding_.get(), .ids = {const_cast<int32_t*>(batch.token_ids), Shape(tokens), DType::i32}, .out = x});
  for (int32_t i = 0; i < c.layers; ++i) {
    const Layer& l = layers_[static_cast<size_t>(i)];
    const KvLayerView kv = cache(i);
    backend_.qkv_rope_store({.x = x,
                             .norm = l.attn_norm.get(),
                             .eps = kEps,
                             .w = {l.wq.get(), l.wk.get(), l.wv.get()},
                             .q_norm = l.q_norm.get(),
                             .k_norm = l.k_norm.get(),
                             .rope = rope,
                             .kv = kv,
                             .batch = batch,
                             .private_result = true,
                             .q = q});
    backend_.attention({.q = q, .kv = kv, .batch = batch, .scale = scale, .private_result = true, .out = attended});
    backend_.linear({.x = attended, .w = {l.wo.get()}, .residual = x, .out = {x}});
    backend_.gated_mlp({.x = x,
                        .norm = l.ffn_norm.get(),
                        .eps = kEps,
                        .gate = l.gate.get(),
                        .up = l.up.get(),
                        .down = l.down.get(),
                        .residual = x,
                        .out = x});
  }
  if (batch.logit_rows == 0) return;
  const Tensor logits{logits_.data(), Shape(batch.logit_rows, c.vocabulary)};
  backend_.logits({.x = x,
                   .rows = {const_cast<int32_t*>(batch.logit_row_ids), Shape(batch.logit_rows), DType::i32},
                   .norm = output_norm_.get(),
                   .eps = kEps,
                   .head = embedding_.get(),
                   .out = logits});
  if (!sample) return;
  auto* history =
      static_cast<std::byte*>(requests_.data()) + static_cast<size_t>(c.max_sequences) * sizeof(SampleParams);
  backend_.sample({.logits = logits,
                   .params = {requests_.data(), Shape(batch.logit_rows, int64_t{sizeof(SampleParams) / 4}), DType::i32},
                   .history = {history, Shape(batch.logit_rows, kSampleHistory), DType::i32},
                   .out = {sampled_memory_.data(), Shape(batch.logit_rows), DType::i32}});
}

std::vector<float> SeamModel::logits() {
  std::vector<float> out(sampled_.size() * static_cast<size_t>(config_.vocabulary));
  backend_.download(out.data(), logits_.data(), out.size() * sizeof(float));
  return out;
}

}  // namespace inferno
