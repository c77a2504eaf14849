#include "emulated_ops.h"

#include <algorithm>
#include <limits>
#include <string>

#include "quant/quant.h"

namespace inferno::test {
namespace {

// Of a threadgroup, for kernels that leave the number open: two simdgroups, so that they have to work together.
constexpr uint32_t kThreads = 64;
constexpr uint32_t kRowsPerSimdgroup = 4;  // kRows of linear.metal

std::string lower(DType dtype) {
  std::string name(dtype_name(dtype));
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

uint32_t blocks(int64_t count, int64_t per) {
  return static_cast<uint32_t>((count + per - 1) / per);
}
uint32_t u32(int64_t value) {
  return static_cast<uint32_t>(value);
}

metal::CacheArgs cache_args(const KvLayerView& kv) {
  return {.k_row_bytes = static_cast<uint64_t>(kv.row_bytes()),
          .v_row_bytes = static_cast<uint64_t>(kv.values().row_bytes()),
          .page_size = u32(kv.page_size),
          .kv_heads = u32(kv.kv_heads),
          .head_dim = u32(kv.head_dim),
          .value_dim = u32(kv.value_dim())};
}

}  // namespace

bool EmulatedOps::run(const OpImage& image) {
  return image.record().visit([&](const auto& args) { return op(args); });
}

EmulatedOps::Planes EmulatedOps::planes_of(const Weight& weight) const {
  Planes planes{.layout = metal::plane_layout(weight.dtype(), weight.rows(), weight.cols())};
  planes.bytes.resize(planes.layout.bytes);
  std::vector<std::byte> row(static_cast<size_t>(row_bytes(weight.dtype(), weight.cols())));
  for (int64_t r = 0; r < weight.rows(); ++r) {
    weight.read_row(r, row);
    metal::pack_row(weight.dtype(), planes.layout, r, row.data(), planes.bytes);
  }
  return planes;
}

float* EmulatedOps::temporary(int64_t count) {
  auto& memory = temporaries_.emplace_back(new float[static_cast<size_t>(count)]);
  std::fill_n(memory.get(), count, std::numeric_limits<float>::quiet_NaN());
  return memory.get();
}

float* EmulatedOps::vector_of(const Weight* weight) {
  if (weight == nullptr) return nullptr;
  std::vector<std::byte> row(static_cast<size_t>(row_bytes(weight->dtype(), weight->cols())));
  weight->read_row(0, row);
  float* values = temporary(weight->cols());
  dequantize_row(weight->dtype(), row.data(), values, weight->cols());
  return values;
}

void EmulatedOps::dispatch(const std::string& kernel, emulator::Size groups, emulator::Size threads,
                           const std::vector<const void*>& buffers) const {
  emulator::Buffers bound;
  for (size_t i = 0; i < buffers.size(); ++i) bound[static_cast<int>(i)] = const_cast<void*>(buffers[i]);
  emulator::dispatch({.kernel = kernel, .groups = groups, .threads = threads, .order = order_}, bound);
}

void EmulatedOps::norm(const float* x, const Weight* weight, int64_t rows, int64_t cols, float eps, float* out) {
  const metal::RmsNormArgs args{.cols = u32(cols), .has_weight = weight != nullptr, .eps = eps};
  dispatch("rms_norm", {u32(rows)}, {kThreads}, {&args, x, vector_of(weight), out});
}

void EmulatedOps::activate(Activation activation, const float* x, const float* factor, int64_t count,
                           float* out) const {
  const metal::ActivateArgs args{
      .count = u32(count), .has_factor = factor != nullptr, .activation = static_cast<uint32_t>(activation)};
  dispatch("activate", {blocks(count, kThreads)}, {kThreads}, {&args, x, factor, out});
}

void EmulatedOps::finish(const float* x, const float* residual, float scale, float softcap, int64_t count,
                         float* out) const {
  const metal::FinishArgs args{
      .count = u32(count), .has_residual = residual != nullptr, .scale = scale, .softcap = softcap};
  dispatch("finish", {blocks(count, kThreads)}, {kThreads}, {&args, x, residual, out});
}

void EmulatedOps::multiply(const Weight& weight, const float* x, int64_t tokens, const Weight* bias,
                           const float* residual, const Tensor& rows, float* out) {
  const Planes planes = planes_of(weight);
  const metal::LinearArgs args{.weight = planes.layout.args,
                               .has_bias = bias != nullptr,
                               .has_residual = residual != nullptr,
                               .has_x_rows = !rows.empty(),
                               .padding = 0};
  const uint32_t groups = blocks(weight.rows(), int64_t{kRowsPerSimdgroup} * kThreads / 32);
  dispatch("linear_" + lower(weight.dtype()), {groups, u32(tokens)}, {kThreads},
           {&args, planes.bytes.data(), x, vector_of(bias), residual, out, rows.data});
}

void EmulatedOps::project(const Weight& weight, const float* x, int64_t tokens, const Weight* bias,
                          const Weight* post_norm, float eps, float residual_scale, const Tensor& residual,
                          const Tensor& rows, float* out) {
  const float* added = residual.empty() ? nullptr : residual.f32();
  if (post_norm == nullptr && residual_scale == 1) {
    multiply(weight, x, tokens, bias, added, rows, out);
    return;
  }
  const int64_t count = tokens * weight.rows();
  float* product = temporary(count);
  multiply(weight, x, tokens, bias, nullptr, rows, product);
  if (post_norm != nullptr) norm(product, post_norm, tokens, weight.rows(), eps, product);
  finish(product, added, residual_scale, 0, count, out);
}

void EmulatedOps::rope_store(const metal::RopeStoreArgs& args, DType type, int64_t tokens,
                             const std::vector<const void*>& buffers) const {
  const uint32_t key_chunks = blocks(args.cache.head_dim, 32);
  const uint32_t value_chunks = blocks(args.cache.value_dim, 32);
  const int64_t chunks =
      int64_t{args.q_heads} * key_chunks + int64_t{args.cache.kv_heads} * (key_chunks + value_chunks);
  dispatch("rope_store_" + lower(type), {blocks(chunks, kThreads), u32(tokens)}, {kThreads}, buffers);
}

bool EmulatedOps::op(const EmbedArgs& a) {
  const Planes planes = planes_of(*a.table);
  const metal::EmbedArgs args{.weight = planes.layout.args, .scale = a.scale, .padding = 0};
  dispatch("embed_" + lower(a.table->dtype()), {blocks(a.table->cols(), int64_t{32} * kThreads), u32(a.ids.elements())},
           {kThreads}, {&args, planes.bytes.data(), a.ids.data, a.out.data});
  return true;
}

bool EmulatedOps::op(const RmsNormArgs& a) {
  const int64_t cols = a.weight != nullptr ? a.weight->cols() : a.x.cols();
  norm(a.x.f32(), a.weight, a.x.elements() / cols, cols, a.eps, a.out.f32());
  return true;
}

bool EmulatedOps::op(const ActivateArgs& a) {
  activate(a.activation, a.x.f32(), a.factor.empty() ? nullptr : a.factor.f32(), a.x.elements(), a.out.f32());
  return true;
}

bool EmulatedOps::op(const LinearArgs& a) {
  const int64_t tokens = a.rows.empty() ? a.x.rows() : a.rows.elements();
  if (a.epilogue == Epilogue::swiglu) {
    float* gate = temporary(a.out[0].elements());
    float* up = temporary(a.out[0].elements());
    multiply(*a.w[0], a.x.f32(), tokens, nullptr, nullptr, a.rows, gate);
    multiply(*a.w[1], a.x.f32(), tokens, nullptr, nullptr, a.rows, up);
    activate(Activation::silu, gate, up, a.out[0].elements(), a.out[0].f32());
    return true;
  }
  for (int i = 0; i < LinearArgs::kMaxWeights && a.w[i] != nullptr; ++i) {
    project(*a.w[i], a.x.f32(), tokens, a.bias[i], a.post_norm, a.eps, a.residual_scale, a.residual, a.rows,
            a.out[i].f32());
  }
  return true;
}

bool EmulatedOps::op(const KvStoreArgs& a) {
  const metal::RopeStoreArgs args{
      .cache = cache_args(a.kv), .q_heads = 0, .rotated_dims = 0, .interleaved = 0, .stores = 1};
  rope_store(
      args, a.kv.dtype, a.batch.tokens,
      {&args, nullptr, a.k.data, a.v.data, nullptr, nullptr, a.batch.pos, a.batch.slot, nullptr, a.kv.k, a.kv.v});
  return true;
}

const float* EmulatedOps::input_of(const Tensor& x, const Weight* norm_weight, float eps) {
  if (norm_weight == nullptr) return x.f32();
  float* normed = temporary(x.elements());
  norm(x.f32(), norm_weight, x.rows(), x.cols(), eps, normed);
  return normed;
}

bool EmulatedOps::op(const QkvRopeStoreArgs& a) {
  const int64_t tokens = a.x.rows();
  const float* h = input_of(a.x, a.norm, a.eps);
  const auto product = [&](int i, const Weight* weight, const Weight* norm_weight) {
    const int64_t count = tokens * weight->rows();
    float* out = temporary(count);
    multiply(*weight, h, tokens, a.bias[i], nullptr, {}, out);
    if (norm_weight != nullptr) norm(out, norm_weight, count / norm_weight->cols(), norm_weight->cols(), a.eps, out);
    return out;
  };
  const bool stores = a.w[1] != nullptr;
  const float* q = product(0, a.w[0], a.q_norm);
  const float* k = stores ? product(1, a.w[1], a.k_norm) : nullptr;
  // Without a weight of its own, v is k before its norm.
  const int value = a.w[2] != nullptr ? 2 : 1;
  float* v = stores ? product(value, a.w[value], nullptr) : nullptr;
  if (stores && a.v_norm) norm(v, nullptr, tokens * a.kv.kv_heads, a.kv.value_dim(), a.eps, v);
  if (a.w_gate != nullptr) multiply(*a.w_gate, h, tokens, nullptr, nullptr, {}, a.gate.f32());
  const void* table = a.rope.table.data;
  const metal::RopeStoreArgs args{.cache = cache_args(a.kv),
                                  .q_heads = u32(a.w[0]->rows() / a.kv.head_dim),
                                  .rotated_dims = table == nullptr ? 0 : u32(a.rope.rotated_dims),
                                  .interleaved = a.rope.pairing == RopePairing::interleaved,
                                  .stores = stores};
  rope_store(args, a.kv.dtype, tokens,
             {&args, q, k, v, table, a.q_rope.empty() ? table : a.q_rope.data, a.batch.pos, a.batch.slot, a.q.data,
              a.kv.k, a.kv.v});
  return true;
}

bool EmulatedOps::op(const AttentionArgs& a) {
  constexpr uint32_t kSplits = 3;
  constexpr int32_t kMaxHead = 256;
  if (a.kv.head_dim > kMaxHead || a.kv.value_dim() > kMaxHead) return false;
  const int64_t q_heads = a.q.cols() / a.kv.head_dim;
  uint32_t gate = 0;
  if (!a.gate.empty()) gate = a.gate.elements() == a.out.elements() ? 1 : 2;
  const metal::AttentionArgs args{.cache = cache_args(a.kv),
                                  .scale = a.scale,
                                  .softcap = a.softcap,
                                  .window = a.window,
                                  .causal = a.causal,
                                  .q_heads = u32(q_heads),
                                  .max_pages = u32(a.batch.max_pages),
                                  .splits = kSplits,
                                  .has_sinks = a.sinks != nullptr,
                                  .gate = gate,
                                  .gate_activation = static_cast<uint32_t>(a.gate_activation)};
  float* partials = temporary(a.batch.tokens * q_heads * kSplits * (a.kv.value_dim() + 2));
  dispatch("attention_part_" + lower(a.kv.dtype), {u32(q_heads), u32(a.batch.tokens), kSplits}, {128},
           {&args, a.q.data, a.kv.k, a.kv.v, a.batch.pos, a.batch.seq_of_token, a.batch.kv_len, a.batch.block_table,
            partials});
  dispatch("attention_merge", {blocks(a.kv.value_dim(), kThreads), u32(q_heads), u32(a.batch.tokens)}, {kThreads},
           {&args, partials, vector_of(a.sinks), a.gate.data, a.out.data});
  return true;
}

bool EmulatedOps::op(const GatedMlpArgs& a) {
  const int64_t tokens = a.x.rows();
  const float* h = input_of(a.x, a.norm, a.eps);
  const int64_t count = tokens * a.up->rows();
  float* up = temporary(count);
  multiply(*a.up, h, tokens, a.bias[1], nullptr, {}, up);
  if (a.gate != nullptr) {
    float* gate = temporary(count);
    multiply(*a.gate, h, tokens, a.bias[0], nullptr, {}, gate);
    activate(a.activation, gate, up, count, up);
  } else {
    activate(a.activation, up, nullptr, count, up);
  }
  project(*a.down, up, tokens, a.bias[2], a.post_norm, a.eps, a.residual_scale, a.residual, {}, a.out.f32());
  return true;
}

bool EmulatedOps::op(const LogitsArgs& a) {
  float* normed = temporary(a.x.elements());
  norm(a.x.f32(), a.norm, a.x.rows(), a.x.cols(), a.eps, normed);
  multiply(*a.head, normed, a.rows.elements(), nullptr, nullptr, a.rows, a.out.f32());
  if (a.scale != 1 || a.softcap != 0) {
    finish(a.out.f32(), nullptr, a.scale, a.softcap, a.out.elements(), a.out.f32());
  }
  return true;
}

}  // namespace inferno::test
