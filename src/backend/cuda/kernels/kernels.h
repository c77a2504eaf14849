// What the host side launches. Each function enqueues kernels on the context's stream and returns; parameters are
// plain device addresses. Nothing here allocates or synchronizes, so all of it can be captured into a graph.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/weight_layout.h"
#include "backend/op_args.h"
#include "backend/sampling.h"

namespace inferno::cuda {

struct LaunchContext {
  cudaStream_t stream = nullptr;
  int sm_count = 1;
  // Start a kernel while the previous one ends (programmatic dependent launch): needs compute capability 9.0.
  bool overlap = false;
  bool hopper = false;  // compute capability 9.0: wgmma and TMA
};

// ---- matrix–vector -------------------------------------------------------------------------------------------------

// Tokens up to which a product is a matrix–vector kernel (vector_product_fits).
inline constexpr int kMaxVectorTokens = 8;
// The same of the kernel for any GPU. F32 and 16-bit weights are faster as a matrix product from the second token on;
// quantized ones have to be unpacked for that, which pays off later.
[[nodiscard]] constexpr int max_vector_tokens(DType dtype) {
  return group_bytes(dtype).s == 0 ? 1 : 4;
}
// Columns of that kernel when it multiplies this many tokens, the padding included.
[[nodiscard]] constexpr int vector_columns(int tokens) {
  return tokens == 1 ? 1 : 4;
}
inline constexpr int kMaxSegments = 3;

// One weight of a product and its output.
struct Segment {
  Planes w;
  DType dtype = DType::f32;
  int rows = 0;
  const float* bias = nullptr;  // [rows] or null
  float* out = nullptr;         // [tokens, rows]
};

// out_i = norm(x[row_ids]) * w_i^T + bias_i (+ residual); SwiGLU: out_0 = silu(. w_0^T) * (. w_1^T).
struct VectorProduct {
  const float* x = nullptr;  // [*, k]
  const int32_t* row_ids = nullptr;
  const float* norm = nullptr;  // [k] or null
  float eps = 0;
  int tokens = 0;
  int k = 0;
  int segments = 0;
  Segment segment[kMaxSegments];
  const float* residual = nullptr;  // [tokens, rows] or null; one segment
  bool swiglu = false;              // two segments of one type and one number of rows
};
// Whether there is a kernel for this many tokens, and their activations fit its shared memory.
[[nodiscard]] bool vector_product_fits(const LaunchContext& c, DType dtype, int tokens, int64_t k);
void launch_vector_product(const LaunchContext& c, const VectorProduct& p);

// ---- rows: embedding, norm, conversion -----------------------------------------------------------------------------

void launch_embed(const LaunchContext& c, const Planes& table, DType dtype, int64_t vocabulary, const int32_t* ids,
                  int tokens, int64_t cols, float scale, float* out);
void launch_rms_norm(const LaunchContext& c, const float* x, const float* weight, float eps, int64_t rows, int64_t cols,
                     float* out);
// Rows for a matrix product: x[row_ids], normalized if `norm` is given, as `dtype` (f32, f16, bf16) with rows
// `out_stride` elements apart, zero beyond cols.
void launch_prepare_rows(const LaunchContext& c, const float* x, const int32_t* row_ids, const float* norm, float eps,
                         int64_t rows, int64_t cols, DType dtype, int64_t out_stride, void* out);
// out = silu(gate) * up; gate and up [rows, cols] are f32, or bf16 with a bf16 out; rows in_stride and out_stride
// elements apart.
void launch_swiglu(const LaunchContext& c, const void* gate, const void* up, int64_t rows, int64_t cols, DType in,
                   int64_t in_stride, DType out_type, int64_t out_stride, void* out);
// out [rows, cols] f32 += bias[cols]; rows out_stride apart.
void launch_add_bias(const LaunchContext& c, float* out, const float* bias, int64_t rows, int64_t cols,
                     int64_t out_stride);
// Rows [first, first + count) of quantized weights of one type as bf16 [count, cols].
inline constexpr int kMaxUnpackPieces = 7;  // the weights of a layer
struct UnpackTask {
  struct Piece {
    Planes w;
    int64_t first = 0;
    int64_t count = 0;
    void* out = nullptr;
  };
  DType dtype = DType::q8_0;
  int pieces = 0;
  Piece piece[kMaxUnpackPieces];
  bool beside = false;  // it starts only when nothing reads what was there, and may run beside the kernel before
};
void launch_unpack_bf16(const LaunchContext& c, const UnpackTask& task);
// Canonical rows (in device memory) into planes, rows [first, first + count).
void launch_pack(const LaunchContext& c, const void* canonical, DType dtype, int64_t first, int64_t count,
                 const Planes& w);

// ---- small copies from and to page-locked host memory: lower latency than the copy engine --------------------------

inline constexpr int kMaxFetches = 4;
struct FetchTask {
  struct Piece {
    const void* from = nullptr;
    void* to = nullptr;
    uint32_t bytes = 0;  // a multiple of 4; both addresses are multiples of 16
  };
  int pieces = 0;
  Piece piece[kMaxFetches];
};
void launch_fetch(const LaunchContext& c, const FetchTask& task);
// `bytes`, a multiple of 4, into host memory; then `count` is incremented and its new value stored in `host_count`.
void launch_deliver(const LaunchContext& c, const void* from, int64_t bytes, void* to, uint32_t* count,
                    uint32_t* host_count);

// ---- cache and attention -------------------------------------------------------------------------------------------

// Raw projections of the step's tokens, f32 or bf16 rows.
struct RawHeads {
  const void* q = nullptr;  // [T, q_heads * head_dim]
  const void* k = nullptr;  // [T, kv_heads * head_dim]
  const void* v = nullptr;
  DType dtype = DType::f32;
  int64_t q_stride = 0;   // elements between tokens
  int64_t kv_stride = 0;  // of k and of v
};
struct HeadNorms {
  const float* q = nullptr;  // [head_dim] or null
  const float* k = nullptr;
  float eps = 0;
};
// QK-norm, rotation, cache rows; q_out [T, q_heads * head_dim] of q_type may be raw.q.
struct RopeStore {
  RawHeads raw;
  HeadNorms norms;
  RopeParams rope;
  KvLayerView kv;
  StepBatch batch;
  int q_heads = 0;
  void* q_out = nullptr;
  DType q_type = DType::f32;  // or, where narrow_q_supports says so, the cache's type
};
[[nodiscard]] bool narrow_q_supports(const KvLayerView& kv, const RopeParams& rope);
void launch_rope_store(const LaunchContext& c, const RopeStore& task);
void launch_kv_store(const LaunchContext& c, const float* k, const float* v, const KvLayerView& kv,
                     const StepBatch& batch);

// Shared by all attention kernels.
struct AttentionTask {
  const float* q = nullptr;  // [T, q_heads * head_dim]
  float* out = nullptr;      // [T, q_heads * value_dim]
  int q_heads = 0;
  float scale = 1;
  KvLayerView kv;
  StepBatch batch;
  // launch_attention_any only, as AttentionArgs has them.
  bool causal = true;
  int window = 0;
  float softcap = 0;
  const float* sinks = nullptr;  // [q_heads] or null
  const float* gate = nullptr;   // [T, q_heads * value_dim], or [T, q_heads], or null
  bool gate_per_head = false;
  inferno::Activation gate_activation = inferno::Activation::sigmoid;
  // Hopper's kernels only: q in the cache's type, and out in a 16-bit type, instead of those above.
  const void* narrow_q = nullptr;
  void* narrow_out = nullptr;
  DType narrow_type = DType::bf16;  // of narrow_out
  // launch_hopper_attention only: sequences before this one are launch_batch_attention's, the next kernel.
  int first_sequence = 0;
};
// Any argument, any head size up to kMaxAnyHeadDim (latent attention: 512 + 64) and any cache type; one block per token
// and head.
inline constexpr int kMaxAnyHeadDim = 576;
// Of the other kernels of heads.
inline constexpr int kMaxHeadDim = 256;
void launch_attention_any(const LaunchContext& c, const AttentionTask& task);

// Many sequences of one token each, starting from the raw projections (see DecodeAttention): needs no partials.
struct DecodeAttention;
[[nodiscard]] bool batch_attention_supports(const LaunchContext& c, const KvLayerView& kv, int q_heads, int tokens);
[[nodiscard]] bool launch_batch_attention(const LaunchContext& c, const DecodeAttention& task);
// The first batch.decodes sequences alone, from narrow_q and the rows of the cache, beside a launch_hopper_attention of
// the others, which has to be the kernel before.
[[nodiscard]] bool attention_beside_supports(const LaunchContext& c, const KvLayerView& kv, int q_heads);
[[nodiscard]] bool launch_attention_beside(const LaunchContext& c, const AttentionTask& task);

// One token per sequence: keys cut into splits over blocks. With `raw` the kernel also does QK-norm, rotation and the
// cache rows of the step's own tokens.
struct DecodeAttention {
  AttentionTask task;
  bool fused = false;
  RawHeads raw;
  HeadNorms norms;
  RopeParams rope;
  float* partials = nullptr;     // decode_partial_floats
  uint32_t* counters = nullptr;  // decode_counters, zero, left zero
  // Weights of the next product, which launch_batch_attention() requests into L2; or none.
  struct Request {
    const void* at = nullptr;
    int bytes = 0;  // a multiple of 16
  };
  Request next[3];
  // launch_batch_attention: the next kernel starts only after the end of those before this one, whose memory it uses.
  bool frees_memory = false;
};
[[nodiscard]] bool decode_attention_supports(const KvLayerView& kv, int q_heads);
// Enough for any number of tokens: only few are split.
[[nodiscard]] int64_t decode_partial_floats(const LaunchContext& c, int q_heads, const KvLayerView& kv);
[[nodiscard]] int64_t decode_counters(const LaunchContext& c);
void launch_decode_attention(const LaunchContext& c, const DecodeAttention& task);

// Many tokens per sequence: tensor-core tiles of queries against tiles of keys.
[[nodiscard]] bool prefill_attention_supports(const KvLayerView& kv, int q_heads);
void launch_prefill_attention(const LaunchContext& c, const AttentionTask& task);
// The same with wgmma and TMA; false: the driver cannot map the cache.
[[nodiscard]] bool hopper_attention_supports(const LaunchContext& c, const KvLayerView& kv, int q_heads);
[[nodiscard]] bool launch_hopper_attention(const LaunchContext& c, const AttentionTask& task);

// ---- measuring ------------------------------------------------------------------------------------------------------

// Reads `bytes` (a multiple of 16) and does not write `out`.
void launch_read(const LaunchContext& c, const void* data, int64_t bytes, uint32_t* out);

// ---- sampling ------------------------------------------------------------------------------------------------------

// One token per row, as backend/sampling.h defines it; the addresses are those of SampleArgs.
struct SampleTask {
  const float* logits = nullptr;  // [rows, vocabulary]
  int rows = 0;
  int vocabulary = 0;
  const SampleRow* row = nullptr;     // [rows]
  const TokenEdit* edits = nullptr;   // or null
  const uint32_t* allowed = nullptr;  // [*, allowed_words] or null
  int64_t allowed_words = 0;
  void* scratch = nullptr;     // sample_scratch_bytes
  int32_t* out = nullptr;      // [rows]
  int32_t* top_ids = nullptr;  // [rows, kLogprobColumns] or null
  float* logprobs = nullptr;   // the same
};
[[nodiscard]] int64_t sample_scratch_bytes(int rows, int64_t vocabulary);
void launch_sample(const LaunchContext& c, const SampleTask& task);

}  // namespace inferno::cuda
