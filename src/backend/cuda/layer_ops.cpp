// OpRunner's layers that are two kernels each.
//
// One to four decoded tokens: where ops are a layer of the shape and types that layer_half.cuh has kernels for. The
// residual stream between them is in scratch memory, as parts; the tensor of the ops gets the sum after the last layer.
//
// 33 to 128: attention, and the products between it and the next one (batch_chain.cuh).
#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "backend/cuda/kernels/batch_chain_task.h"
#include "backend/cuda/kernels/layer_task.h"
#include "backend/cuda/op_runner.h"
#include "backend/cuda/op_support.h"
#include "backend/op_extras.h"
#include "base/error.h"

namespace inferno::cuda {
namespace {

constexpr size_t kLayerOps = 4;
constexpr int64_t kRows = int64_t{kMaxLayerTokens} * kLayerWidth;
constexpr int64_t kParts = kMaxLayerClusters * kRows;

struct LayerOps {
  const QkvRopeStoreArgs& qkv;
  const AttentionArgs& attention;
  const LinearArgs& output;
  const GatedMlpArgs& mlp;
};

// The first records, where they are such ops.
std::optional<LayerOps> layer_of(std::span<const OpRecord> records) {
  if (records.size() < kLayerOps || records[0].op() != OpId::qkv_rope_store || records[1].op() != OpId::attention ||
      records[2].op() != OpId::linear || records[3].op() != OpId::gated_mlp) {
    return std::nullopt;
  }
  return LayerOps{records[0].args<QkvRopeStoreArgs>(), records[1].args<AttentionArgs>(), records[2].args<LinearArgs>(),
                  records[3].args<GatedMlpArgs>()};
}

bool is_weight(const Weight* w, int64_t rows, int64_t cols) {
  return w != nullptr && w->rows() == rows && w->cols() == cols;
}

bool has_shape(const LayerOps& l) {
  constexpr int64_t kQueries = int64_t{kLayerHeads} * kLayerHeadDim;
  constexpr int64_t kKeys = int64_t{kLayerKvHeads} * kLayerHeadDim;
  return l.qkv.kv.kv_heads == kLayerKvHeads && l.qkv.kv.head_dim == kLayerHeadDim &&
         is_weight(l.qkv.w[0], kQueries, kLayerWidth) && is_weight(l.qkv.w[1], kKeys, kLayerWidth) &&
         is_weight(l.qkv.w[2], kKeys, kLayerWidth) && is_weight(l.output.w[0], kLayerWidth, kQueries) &&
         is_weight(l.mlp.gate, kLayerMiddle, kLayerWidth) && is_weight(l.mlp.up, kLayerMiddle, kLayerWidth) &&
         is_weight(l.mlp.down, kLayerWidth, kLayerMiddle);
}

bool has_types(const LayerOps& l) {
  const DType most = l.qkv.w[0]->dtype();
  return l.qkv.w[1]->dtype() == most && l.output.w[0]->dtype() == most && layer_types_fit(most, l.qkv.w[2]->dtype()) &&
         l.mlp.gate->dtype() == l.mlp.up->dtype() && layer_types_fit(l.mlp.gate->dtype(), l.mlp.down->dtype());
}

// Nothing but products and the norms before them.
bool has_plain_terms(const LayerOps& l) {
  const bool no_bias =
      l.qkv.bias[0] == nullptr && l.qkv.bias[1] == nullptr && l.qkv.bias[2] == nullptr && l.output.bias[0] == nullptr;
  return no_bias && l.qkv.norm != nullptr && l.mlp.norm != nullptr && inferno::is_plain(l.output) &&
         inferno::is_plain(l.mlp) && l.output.w[1] == nullptr && l.output.rows.empty() &&
         l.output.epilogue == Epilogue::none;
}
// And those of heads where the kernels of few tokens have them.
bool has_terms(const LayerOps& l) {
  return has_plain_terms(l) && l.qkv.q_norm != nullptr && l.qkv.k_norm != nullptr &&
         l.qkv.rope.pairing == RopePairing::half_split;
}

// Each op reads what the one before it wrote, and all add to one tensor.
bool is_chain(const LayerOps& l) {
  const void* x = l.qkv.x.data;
  return l.attention.private_result && l.output.x.data == l.attention.out.data && l.output.residual.data == x &&
         l.output.out[0].data == x && l.mlp.x.data == x && l.mlp.residual.data == x && l.mlp.out.data == x;
}

// The one that may launch batch_chain.cuh: its blocks wait for each other, so two of these kernels at the same time
// could keep blocks of each other from starting.
std::atomic<const OpRunner*> chain_user{nullptr};

LayerWeight weight_of(const Weight* w) {
  return {.w = on_device(w).planes(), .dtype = w->dtype()};
}

// Tiles of such weights are faster than the products between two attentions, with what unpacking a layer costs.
bool is_fast_in_tiles(const Weight* w) {
  return w->dtype() == DType::q8_0 || w->dtype() == DType::q4_0;
}

// Whether the products between the attentions of two layers have weights that are unpacked first.
bool unpacks(const LayerOps& l, const QkvRopeStoreArgs* next) {
  const Weight* const own[] = {l.output.w[0], l.mlp.gate, l.mlp.up, l.mlp.down};
  return unpacked_bytes(own) > 0 || (next != nullptr && unpacked_bytes(next->w) > 0);
}

// Where the rows are is not said here: quantized ones are unpacked first.
BatchChain::Weight rows_of(const Weight* w) {
  return {.rows = static_cast<int>(w->rows())};
}

// The products of a layer after its attention, and those before the attention of the next one.
BatchChain chain_of(const LayerOps& l, const QkvRopeStoreArgs* next) {
  BatchChain p{.tokens = l.qkv.batch.tokens,
               .width = static_cast<int>(l.output.w[0]->rows()),
               .queries = static_cast<int>(l.output.w[0]->cols()),
               .middle = static_cast<int>(l.mlp.gate->rows()),
               .output = rows_of(l.output.w[0]),
               .gate = rows_of(l.mlp.gate),
               .up = rows_of(l.mlp.up),
               .down = rows_of(l.mlp.down),
               .mlp_norm = vector_or_null(l.mlp.norm),
               .mlp_eps = l.mlp.eps,
               .x = l.mlp.out.f32()};
  if (next == nullptr) return p;
  for (int i = 0; i < 3; ++i) p.head[i] = rows_of(next->w[i]);
  p.heads_norm = vector_or_null(next->norm);
  p.heads_eps = next->eps;
  return p;
}

}  // namespace

bool OpRunner::is_layer(std::span<const OpRecord> records) const {
  const std::optional<LayerOps> found = layer_of(records);
  if (!found) return false;
  const LayerOps& l = *found;
  return l.qkv.batch.tokens <= kMaxLayerTokens && fuses(l.qkv, l.attention) && layer_cache_fits(l.attention.kv) &&
         is_chain(l) && has_shape(l) && has_terms(l) && has_types(l);
}

void OpRunner::reserve_layers(const QkvRopeStoreArgs& a) {
  if (a.x.cols() == kLayerWidth && layer_halves_fit(context_)) {
    (void)region(Region::layer_stream, 2 * (kRows + kParts) * size_of(DType::f32));
  }
}

size_t OpRunner::run_layers(std::span<const OpRecord> records) {
  if (!layer_halves_fit(context_) || !is_layer(records)) return 0;
  const Tensor x = records[0].args<QkvRopeStoreArgs>().x;
  reserve_layers(records[0].args<QkvRopeStoreArgs>());
  auto* memory = static_cast<float*>(region(Region::layer_stream, 0));
  LayerStream stream{.tokens = records[0].args<QkvRopeStoreArgs>().batch.tokens, .row_out = x.f32()};
  // Each half reads what the other one stored.
  int parts = 0;
  const auto advance = [&](int half, int next_parts) {
    stream.row = stream.row_out;
    stream.parts = stream.parts_out;
    stream.count = std::exchange(parts, next_parts);
    stream.row_out = memory + half * (kRows + kParts);
    stream.parts_out = stream.row_out + kRows;
  };
  size_t done = 0;
  for (; is_layer(records.subspan(done)); done += kLayerOps) {
    const auto& qkv = records[done].args<QkvRopeStoreArgs>();
    const auto& attention = records[done + 1].args<AttentionArgs>();
    const auto& mlp = records[done + 3].args<GatedMlpArgs>();
    if (qkv.x.data != x.data || qkv.batch.tokens != stream.tokens) break;
    advance(0, kAttentionClusters);
    const AttentionHalf first{.stream = stream,
                              .norm = vector_or_null(qkv.norm),
                              .q = weight_of(qkv.w[0]),
                              .k = weight_of(qkv.w[1]),
                              .v = weight_of(qkv.w[2]),
                              .o = weight_of(records[done + 2].args<LinearArgs>().w[0]),
                              .norms = {vector_or_null(qkv.q_norm), vector_or_null(qkv.k_norm), qkv.eps},
                              .rope = qkv.rope.table.f32(),
                              .kv = attention.kv,
                              .batch = attention.batch,
                              .scale = attention.scale};
    advance(1, mlp_clusters(mlp.gate->dtype(), stream.tokens));
    const MlpHalf second{.stream = stream,
                         .norm = vector_or_null(mlp.norm),
                         .eps = mlp.eps,
                         .gate = weight_of(mlp.gate),
                         .up = weight_of(mlp.up),
                         .down = weight_of(mlp.down)};
    bool mapped = true;
    enqueue([&](const LaunchContext& c) { mapped = launch_attention_half(c, first); });
    enqueue([&](const LaunchContext& c) { mapped = mapped && launch_mlp_half(c, second); });
    if (!mapped) fail("cuda: the driver cannot make a tensor map of a weight or of the cache");
  }
  advance(0, 0);
  enqueue([&](const LaunchContext& c) { launch_layer_sum(c, stream, x.f32()); });
  return done;
}

OpRunner::~OpRunner() {
  const OpRunner* user = this;
  (void)chain_user.compare_exchange_strong(user, nullptr);
}

bool OpRunner::is_batch_layer(std::span<const OpRecord> records) const {
  const std::optional<LayerOps> l = layer_of(records);
  if (!l || l->qkv.batch.tokens < kLeastChainTokens || !fuses(l->qkv, l->attention) || !is_chain(*l) ||
      !has_plain_terms(*l)) {
    return false;
  }
  const Weight* const weights[] = {l->qkv.w[0], l->qkv.w[1], l->qkv.w[2], l->output.w[0],
                                   l->mlp.gate, l->mlp.up,   l->mlp.down};
  for (const Weight* w : weights) {
    if (w == nullptr || wide_type(w->dtype()) != DType::bf16) return false;
  }
  const int64_t unpacked = unpacked_bytes(weights);
  if (unpacked > 0 && (l->qkv.batch.tokens < kLeastUnpackedTokens || unpacked > kUnpackedBytes ||
                       std::any_of(std::begin(weights), std::end(weights), is_fast_in_tiles))) {
    return false;
  }
  return batch_attention_supports(context_, l->attention.kv,
                                  static_cast<int>(l->qkv.w[0]->rows() / l->attention.kv.head_dim),
                                  l->qkv.batch.tokens) &&
         batch_chain_fits(context_, chain_of(*l, &l->qkv));
}

void OpRunner::reserve_batch_layers() {
  if (context_.hopper) (void)region(Region::chain_counters, kChainCounters * int64_t{sizeof(uint32_t)});
}

// Attention frees the memory that weights are unpacked to: the products of the layer before are over when its blocks
// let that kernel start, and places of those that end first are taken by it.
void OpRunner::place_weights(const Weight* output, const GatedMlpArgs& mlp, const QkvRopeStoreArgs* next,
                             BatchChain& p) {
  const Weight* const weights[] = {output,
                                   mlp.gate,
                                   mlp.up,
                                   mlp.down,
                                   next == nullptr ? nullptr : next->w[0],
                                   next == nullptr ? nullptr : next->w[1],
                                   next == nullptr ? nullptr : next->w[2]};
  BatchChain::Weight* const places[] = {&p.output, &p.gate, &p.up, &p.down, &p.head[0], &p.head[1], &p.head[2]};
  const auto existing = std::span(weights).first(next == nullptr ? 4 : std::size(weights));
  p.fresh_weights = unpacked_bytes(existing) > 0;
  if (p.fresh_weights) unpack(existing, true);
  for (size_t i = 0; i < existing.size(); ++i) places[i]->w = bf16_rows(existing[i]);
}

size_t OpRunner::run_batch_layers(std::span<const OpRecord> records) {
  if (planning_ || !is_batch_layer(records)) return 0;
  const OpRunner* user = nullptr;
  if (!chain_user.compare_exchange_strong(user, this) && user != this) return 0;
  const auto& first = records[0].args<QkvRopeStoreArgs>();
  reserve_batch_layers();
  const RawHeads raw = project_heads(first);
  size_t done = 0;
  for (bool more = true; more;) {
    const LayerOps l = *layer_of(records.subspan(done));
    done += kLayerOps;
    const QkvRopeStoreArgs* next = nullptr;
    if (is_batch_layer(records.subspan(done))) next = &records[done].args<QkvRopeStoreArgs>();
    more = next != nullptr && next->x.data == first.x.data && next->batch.tokens == first.batch.tokens;
    for (int i = 0; more && i < 3; ++i) more = next->w[i]->rows() == first.w[i]->rows();
    BatchChain p = chain_of(l, more ? next : nullptr);
    void* attended = region(Region::wide_x, int64_t{p.tokens} * p.queries * size_of(DType::bf16));
    DecodeAttention attention = fused_task(l.qkv, l.attention, raw);
    attention.task.narrow_out = attended;
    attention.task.narrow_type = DType::bf16;
    attention.frees_memory = unpacks(l, more ? next : nullptr);
    const SharedNorm shared = shared_norm(p.width);
    p.attended = attended;
    p.normed_x = shared.x;
    p.squares = shared.squares;
    p.middle_rows = region(Region::wide_middle, int64_t{p.tokens} * p.middle * size_of(DType::bf16));
    p.heads = region(Region::raw_heads, 0);  // as raw has them
    p.counters = static_cast<uint32_t*>(region(Region::chain_counters, 0));
    bool mapped = true;
    enqueue([&](const LaunchContext& c) { mapped = launch_batch_attention(c, attention); });
    place_weights(l.output.w[0], l.mlp, more ? next : nullptr, p);
    enqueue([&](const LaunchContext& c) { mapped = mapped && launch_batch_chain(c, p); });
    if (!mapped) fail("cuda: the driver cannot make a tensor map of a weight or of the cache");
  }
  wide_x_of_ = nullptr;
  return done;
}

}  // namespace inferno::cuda
