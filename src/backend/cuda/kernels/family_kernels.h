// What the host side launches for ops, and arguments of ops, that only some families have. As in kernels.h: nothing
// here allocates or synchronizes; parameters are device addresses.
#pragma once

#include "backend/cuda/kernels/kernels.h"

namespace inferno::cuda {

// ---- rows -----------------------------------------------------------------------------------------------------------

// out = a + b; b has as many elements, or those of one row.
void launch_add(const LaunchContext& c, const float* a, const float* b, int64_t count, int64_t b_count, float* out);

// out = f(x) * factor, or f(x); rows of `cols` elements that are the strides apart. out may be x or factor.
struct ActivateRows {
  const float* x = nullptr;
  const float* factor = nullptr;  // or null
  inferno::Activation activation = inferno::Activation::silu;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t x_stride = 0;
  int64_t factor_stride = 0;
  float* out = nullptr;  // [rows, cols]
};
void launch_activate(const LaunchContext& c, const ActivateRows& task);

// x = cap * tanh(x * scale / cap), or x * scale where the cap is 0; in place.
void launch_scale_and_cap(const LaunchContext& c, float* x, int64_t count, float scale, float cap);

// out = x / sqrt(mean(x^2) + eps) * weight + bias, per row; with `centers` of x - mean(x). out may be x.
struct NormRows {
  const float* x = nullptr;
  const float* weight = nullptr;  // [cols] or null
  const float* bias = nullptr;    // the same
  float eps = 0;
  bool centers = false;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t x_stride = 0;  // elements between rows; 0: cols
  int64_t out_stride = 0;
  float* out = nullptr;
};
void launch_norm_rows(const LaunchContext& c, const NormRows& task);

// out [rows, cols] = out_scale * (residual + residual_scale * norm(y)), the norm being of each norm_cols columns.
struct FinishRows {
  const float* y = nullptr;     // may be out
  const float* norm = nullptr;  // [norm_cols] or null
  float eps = 0;
  int64_t norm_cols = 0;
  const float* residual = nullptr;  // or null; may be out
  float residual_scale = 1;
  float out_scale = 1;
  int64_t rows = 0;
  int64_t cols = 0;
  float* out = nullptr;
};
void launch_finish_rows(const LaunchContext& c, const FinishRows& task);

// ---- heads ----------------------------------------------------------------------------------------------------------

// Rotation and cache rows of heads whose norms were made before.
struct HeadStore {
  const float* q = nullptr;  // [T, q_heads * head_dim]; may be q_out
  const float* k = nullptr;  // [T, kv_heads * head_dim], or null: nothing is stored
  const float* v = nullptr;  // [T, kv_heads * value_dim]
  int q_heads = 0;
  const float* q_table = nullptr;  // [context, rotated_dims], or null: q does not rotate
  const float* k_table = nullptr;
  int rotated_dims = 0;
  bool half_split = true;
  KvLayerView kv;
  StepBatch batch;
  float* q_out = nullptr;
};
void launch_head_store(const LaunchContext& c, const HeadStore& task);

// Rows of f32 values into the cache as keys or values: rows [T, kv_heads * dim] of `view`, whose rows are stored_dim
// elements apart.
void launch_cache_rows(const LaunchContext& c, const float* rows, const KvLayerView& view, const StepBatch& batch);

// The ends of rows rotate in place: elements [kept, kept + rotated) of each head of x [T, heads * (kept + rotated)],
// read from `from`, where heads are from_head elements apart and the elements begin at from_kept.
struct RotateEnds {
  const float* from = nullptr;
  int64_t from_token = 0;  // elements between tokens
  int64_t from_head = 0;
  int64_t from_kept = 0;
  const float* table = nullptr;  // [context, rotated]
  int rotated = 0;
  bool half_split = true;
  const int32_t* positions = nullptr;  // [T]
  int64_t tokens = 0;
  int heads = 0;
  int64_t kept = 0;
  float* out = nullptr;
};
void launch_rotate_ends(const LaunchContext& c, const RotateEnds& task);

// ---- products with one of several matrices --------------------------------------------------------------------------

// What pairs (token, slot) a block multiplies at a time: those of one matrix.
struct PairTile {
  int32_t matrix = 0;
  int32_t first = 0;  // in the list of pairs
  int32_t count = 0;
};
// Pairs sorted by matrix, and cut into tiles.
struct PairLists {
  int32_t* count = nullptr;   // [1]: tiles
  PairTile* tiles = nullptr;  // [max_tiles]
  int32_t* pairs = nullptr;   // [tokens * slots]
};
inline constexpr int kMaxExperts = 1024;
[[nodiscard]] constexpr int64_t max_tiles(int64_t pairs, int64_t matrices, int columns) {
  const int64_t whole = pairs / columns + matrices;
  return whole < pairs ? whole : pairs;
}

// Pair p = token * slots + slot: out of p = matrix of p * x of p + bias of that matrix.
struct PairProduct {
  Planes w;
  DType dtype = DType::f32;
  int rows = 0;  // of a matrix; matrix e is rows [e * rows, (e + 1) * rows) of w
  int k = 0;
  const float* bias = nullptr;   // [matrices * rows] or null
  const int32_t* ids = nullptr;  // [pairs]: the matrix of each; null: its slot
  int64_t tokens = 0;
  int slots = 1;
  int matrices = 1;
  PairLists lists;  // with ids and columns > 1
  int columns = 1;  // pairs of a tile: 1 or kPairColumns
  const float* x = nullptr;
  int64_t x_token = 0;  // elements between tokens, and between slots
  int64_t x_slot = 0;
  float* out = nullptr;
  int64_t out_token = 0;
  int64_t out_slot = 0;
};
inline constexpr int kPairColumns = 8;
// Whether a block has room for that many rows of x.
[[nodiscard]] bool pair_product_fits(DType dtype, int64_t k, int columns);
void launch_pair_product(const LaunchContext& c, const PairProduct& p);

// ---- experts --------------------------------------------------------------------------------------------------------

struct RouteTask {
  const float* logits = nullptr;          // [tokens, experts]
  const float* selection_bias = nullptr;  // [experts] or null
  const float* expert_scale = nullptr;    // the same
  Routing routing;
  int64_t tokens = 0;
  int experts = 0;
  int32_t* ids = nullptr;    // [tokens, used], best first
  float* weights = nullptr;  // the same
};
void launch_route(const LaunchContext& c, const RouteTask& task);
void launch_sort_pairs(const LaunchContext& c, const int32_t* ids, int64_t pairs, int matrices, int columns,
                       const PairLists& lists);

// out = out_scale * (residual + residual_scale * post_norm(y)) with, per token,
// y = experts_norm(sum of weight * part) + sigmoid(h . shared_gate) * shared.
struct ExpertSum {
  const float* parts = nullptr;    // [tokens * used, cols]
  const float* weights = nullptr;  // [tokens, used]
  int used = 1;
  const float* h = nullptr;             // [tokens, cols]
  const float* experts_norm = nullptr;  // [cols] or null, as all that follow
  const float* shared = nullptr;        // [tokens, cols]
  const float* shared_gate = nullptr;   // [cols]
  const float* post_norm = nullptr;     // [cols]
  float eps = 0;
  const float* residual = nullptr;  // [tokens, cols]; may be out
  float residual_scale = 1;
  float out_scale = 1;
  int64_t tokens = 0;
  int64_t cols = 0;
  float* out = nullptr;
};
inline constexpr int64_t kMaxExpertCols = 48 * 1024;  // a block keeps a row in shared memory
void launch_expert_sum(const LaunchContext& c, const ExpertSum& task);

// ---- recurrent layers -----------------------------------------------------------------------------------------------

struct ShortConv {
  const float* x = nullptr;       // [T, channels]; may be out
  const float* factor = nullptr;  // or null, as all that follow
  const float* weight = nullptr;  // [channels, taps]
  const float* bias = nullptr;
  bool silu = false;
  const float* gate = nullptr;
  float* state = nullptr;  // [slots, (taps - 1) * channels]
  int64_t channels = 0;
  int taps = 0;
  StepBatch batch;
  float* out = nullptr;
};
void launch_short_conv(const LaunchContext& c, const ShortConv& task);

// Elements of a key, or of a Mamba-2 state, that a warp has room for.
inline constexpr int kMaxStateRows = 256;
struct DeltaNet {
  const float* qkv = nullptr;
  const float* beta = nullptr;
  const float* alpha = nullptr;
  const float* a = nullptr;
  const float* dt = nullptr;
  int k_heads = 0;
  int v_heads = 0;
  int head_dim = 0;
  bool grouped = false;
  float* state = nullptr;
  StepBatch batch;
  float* out = nullptr;  // q M of each head, before the norm
};
void launch_delta_net(const LaunchContext& c, const DeltaNet& task);

struct Mamba2 {
  const float* xbc = nullptr;
  const float* dt = nullptr;
  const float* a = nullptr;
  const float* dt_bias = nullptr;
  const float* skip = nullptr;
  int heads = 0;
  int head_dim = 0;
  int state_size = 0;
  int groups = 1;
  float* state = nullptr;
  StepBatch batch;
  float* out = nullptr;  // y of each head, before the gate and the norm
};
void launch_mamba2(const LaunchContext& c, const Mamba2& task);

// x [rows, cols] in place, the norm being of each norm_cols columns: norm(x) * silu(z), or norm(x * silu(z)).
struct GatedNorm {
  float* x = nullptr;
  const float* z = nullptr;
  const float* weight = nullptr;  // [weight_cols]
  int64_t weight_cols = 0;        // norm_cols or cols
  float eps = 0;
  bool gates_first = false;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t norm_cols = 0;
};
void launch_gated_norm(const LaunchContext& c, const GatedNorm& task);

}  // namespace inferno::cuda
