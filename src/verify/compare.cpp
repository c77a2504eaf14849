#include "verify/compare.h"

#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <limits>

#include "backend/op_fields.h"
#include "quant/quant.h"

namespace inferno {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Floats in order as integers: neighbours differ by one.
int64_t ordered(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  return bits >= 0 ? int64_t{bits} : int64_t{std::numeric_limits<int32_t>::min()} - bits;
}

class Accumulator {
 public:
  Accumulator(size_t op, std::string field) {
    result_.op = op;
    result_.field = std::move(field);
  }

  // `base` is the part of both that the op did not make.
  void add(float reference, float tested, float base = 0) {
    const int64_t index = result_.elements++;
    if (std::isfinite(reference)) {
      const double made = static_cast<double>(reference) - base;
      squares_ += made * made;
      if (base != 0) roundings_ += static_cast<double>(reference) * reference * kRounding * kRounding;
    }
    if (std::bit_cast<uint32_t>(reference) == std::bit_cast<uint32_t>(tested)) return;
    if (std::isnan(reference) && std::isnan(tested)) return;
    const double difference = std::fabs(static_cast<double>(tested) - reference);
    if (!std::isfinite(difference)) {  // a lone NaN or infinity
      broken_ = true;
      note(index, kInfinite, reference, tested);
      result_.max_ulp = std::numeric_limits<uint64_t>::max();
      return;
    }
    const auto ulp = static_cast<uint64_t>(std::abs(ordered(reference) - ordered(tested)));
    result_.max_ulp = std::max(result_.max_ulp, ulp);
    note(index, difference, reference, tested);
    errors_ += difference * difference;
  }
  void add(int32_t reference, int32_t tested) {
    const int64_t index = result_.elements++;
    if (reference == tested) return;
    broken_ = true;
    note(index, std::fabs(static_cast<double>(tested) - reference), reference, tested);
  }

  FieldDifference take() {
    if (broken_) {
      result_.nmse = kInfinite;
    } else if (errors_ > 0) {
      result_.nmse = squares_ > 0 ? errors_ / squares_ : kInfinite;
    }
    if (squares_ > 0) result_.rounding = roundings_ / squares_;
    return std::move(result_);
  }

 private:
  static constexpr double kRounding = 0x1p-23;  // of two sums, half a unit in the last place each

  void note(int64_t index, double difference, double reference, double tested) {
    if (difference > 0) result_.max_rel = std::max(result_.max_rel, difference / std::fabs(reference));
    if (difference <= result_.max_abs) return;
    result_.max_abs = difference;
    result_.worst = index;
    result_.worst_reference = reference;
    result_.worst_tested = tested;
  }

  FieldDifference result_;
  double errors_ = 0;
  double squares_ = 0;
  double roundings_ = 0;
  bool broken_ = false;
};

struct Written {
  size_t op = 0;
  std::string name;
  Tensor tensor;
  Tensor residual;
  KvLayerView kv;
  StepBatch batch;
};

// The written fields of an image's ops, with the batch that goes with a cache and the residual that goes with a sum.
class Collect final : public FieldVisitor {
 public:
  explicit Collect(const OpImage& image) : names_ops_(image.records().size() > 1) {
    for (; op_ < image.records().size(); ++op_) {
      residual_ = {};
      name_ = op_name(image.records()[op_].op());
      visit_fields(image.records()[op_], *this);
    }
  }
  void tensor(FieldTag tag, std::string_view name, Tensor& t) override {
    if (name == "residual") residual_ = t;
    if (!is_written(tag) || t.data == nullptr) return;
    written.push_back({.op = op_, .name = full(name), .tensor = t, .residual = residual_, .kv = {}, .batch = {}});
  }
  void kv(FieldTag tag, std::string_view name, KvLayerView& view) override {
    if (!is_written(tag)) return;
    written.push_back({.op = op_, .name = full(name), .tensor = {}, .residual = {}, .kv = view, .batch = {}});
  }
  void batch(std::string_view /*name*/, StepBatch& b) override {
    for (Written& field : written) {
      if (field.kv.k != nullptr) field.batch = b;
    }
  }
  std::vector<Written> written;

 private:
  [[nodiscard]] std::string full(std::string_view name) const {
    return names_ops_ ? fmt::format("{}.{}", name_, name) : std::string(name);
  }
  bool names_ops_;
  size_t op_ = 0;
  std::string_view name_;
  Tensor residual_;
};

FieldDifference compare_tensor(const Written& before, const Written& reference, const Written& tested) {
  Accumulator sum(reference.op, reference.name);
  const float* residual = before.residual.f32();
  for (int64_t i = 0; i < reference.tensor.elements(); ++i) {
    if (reference.tensor.dtype == DType::i32) {
      sum.add(reference.tensor.as<int32_t>()[i], tested.tensor.as<int32_t>()[i]);
    } else {
      sum.add(reference.tensor.f32()[i], tested.tensor.f32()[i], residual == nullptr ? 0 : residual[i]);
    }
  }
  return sum.take();
}

FieldDifference compare_cache(const Written& reference, const Written& tested, bool values) {
  const KvLayerView view = values ? reference.kv.values() : reference.kv;
  const void* const other = values ? tested.kv.v : tested.kv.k;
  Accumulator sum(reference.op, reference.name + (values ? ".v" : ".k"));
  std::vector<float> a(static_cast<size_t>(view.head_dim));
  std::vector<float> b(a.size());
  for (int32_t t = 0; t < reference.batch.tokens; ++t) {
    const int32_t slot = reference.batch.slot[t];
    if (slot < 0) continue;
    for (int32_t head = 0; head < view.kv_heads; ++head) {
      const int64_t offset = view.row_offset(slot, head);
      dequantize_row(view.dtype, static_cast<const char*>(view.k) + offset, a.data(), view.head_dim);
      dequantize_row(view.dtype, static_cast<const char*>(other) + offset, b.data(), view.head_dim);
      for (size_t i = 0; i < a.size(); ++i) sum.add(a[i], b[i]);
    }
  }
  return sum.take();
}

// ---- limits

// The types that decide how much an op may round: its first matrix, and its cache.
class Types final : public FieldVisitor {
 public:
  void weight(std::string_view name, const Weight*& w) override {
    // A router, too, is a matrix; experts decide.
    if (w != nullptr && w->shape().rank > 1 && (!has_matrix || name == "gate" || name == "up")) {
      has_matrix = true;
      matrix = w->dtype();
    }
  }
  void kv(FieldTag tag, std::string_view /*name*/, KvLayerView& view) override {
    cache = view.dtype;
    stores = is_written(tag);
  }
  DType matrix = DType::f32;
  DType cache = DType::f32;
  bool has_matrix = false;
  bool stores = false;
};

// Nmse of a product by how activations are converted (numerics contract).
//   f32: order of the sum. f16, bf16: rounding to 11 or 8 bits, uniform, (2^-11)^2 / 3 and (2^-8)^2 / 12, with room.
//   Quantized: 8 bits of the largest of 32 or 256 values, which is about 2.5 or 3.5 deviations: (3.5 / 127)^2 / 12.
//   The limits are those of one token and 13 distinct rows: blocks of 32 reach 2.4e-4 once in 3,000 draws of such.
double product_limit(DType dtype, Numerics numerics) {
  constexpr double kOrder = 1e-11;
  if (numerics == Numerics::default_bodies) return kOrder;
  if (numerics == Numerics::cpu_kernels) return is_quantized(dtype) ? 0 : kOrder;
  if (dtype == DType::f32) return kOrder;
  if (dtype == DType::f16) return 5e-7;
  if (dtype == DType::bf16 || numerics == Numerics::wide) return 1e-5;
  return is_k_format(dtype) ? 3e-4 : 2.5e-4;
}

// A value that differs in its last bits may round to the neighbour when it is stored.
double store_limit(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0;
    case DType::f16:
      return 1e-7;
    case DType::bf16:
      return 1e-5;
    default:
      return 1e-4;
  }
}

// Attention rounds the query and the weights to the cache's type when that is bf16 (or may, when it is 8 bits wide).
double attention_limit(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 1e-10;
    case DType::f16:
      return 2e-6;
    case DType::bf16:
      return 3e-5;
    default:
      return 3e-4;
  }
}

// After a norm, an activation function or another op, inputs differ in their last bits, and now and then one of them
// falls to the other side of a rounding boundary when it is converted for a product.
constexpr double kFlips = 1e-5;

}  // namespace

std::vector<FieldDifference> compare_written(const OpImage& before, const OpImage& reference, const OpImage& tested) {
  const Collect inputs(before);
  const Collect a(reference);
  const Collect b(tested);
  std::vector<FieldDifference> differences;
  for (size_t i = 0; i < a.written.size(); ++i) {
    if (a.written[i].kv.k == nullptr) {
      differences.push_back(compare_tensor(inputs.written[i], a.written[i], b.written[i]));
    } else {
      differences.push_back(compare_cache(a.written[i], b.written[i], false));
      if (!a.written[i].kv.v_in_k) differences.push_back(compare_cache(a.written[i], b.written[i], true));
    }
  }
  return differences;
}

double nmse_limit(const OpRecord& record, Numerics numerics) {
  Types types;
  visit_fields(record, types);
  const double product = product_limit(types.matrix, numerics);
  switch (record.op()) {
    case OpId::silu:
    case OpId::activate:
    case OpId::soft_cap:
    case OpId::rsqrt_elem:
    case OpId::softmax_rows:
    case OpId::route:
    case OpId::rms_norm:
    case OpId::layer_norm:
    case OpId::argmax_with_prob:
    case OpId::sum_squares_axis:
    case OpId::apply_rope:
    case OpId::apply_rope_single_row:
    case OpId::short_conv:
      return 1e-12;
    case OpId::matmul:
    case OpId::delta_net:  // errors of earlier tokens are in the state
    case OpId::mamba2:
      return 1e-11;
    case OpId::kv_store:
      return types.cache == DType::q8_0 ? store_limit(types.cache) : 0;
    case OpId::linear:  // SwiGLU: the product of two results, with the table's own exp
      return record.args<LinearArgs>().epilogue == Epilogue::swiglu ? 3 * product + 1e-12 : product;
    case OpId::head_linear:
      return product;
    case OpId::latent_store:
    case OpId::qkv_rope_store:
      return product + store_limit(types.cache) + (types.matrix == DType::f32 ? 0 : kFlips);
    case OpId::logits:
      return product + (types.matrix == DType::f32 ? 0 : kFlips);
    case OpId::moe_mlp:
    case OpId::layer_input:
    case OpId::gated_mlp:  // two products in a row, the second of products of errors; of few values they add up
      return 10 * product + (types.matrix == DType::f32 ? 0 : kFlips);
    case OpId::attention:
      return attention_limit(types.cache);
    case OpId::sample:  // log-probabilities; a drawn token that differs is beyond any limit
      return 1e-12;
    default:  // copies, look-ups, single operations: the same bits everywhere
      return 0;
  }
}

std::vector<double> nmse_limits(std::span<const OpRecord> group, std::span<const Numerics> numerics) {
  std::vector<double> limits;
  for (size_t i = 0; i < group.size(); ++i) {
    const OpRecord& record = group[i];
    double limit = nmse_limit(record, numerics[i]);
    if (!limits.empty()) {
      Types types;
      visit_fields(record, types);
      limit += limits.back() + (types.has_matrix && types.matrix != DType::f32 ? kFlips : 0);
    }
    limits.push_back(limit);
  }
  return limits;
}

}  // namespace inferno
