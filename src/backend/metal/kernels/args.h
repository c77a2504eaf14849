// Arguments of the kernels, as both sides see them: C++ fills them in, Metal reads them. Fixed-width scalars alone, the
// widest first, so that no compiler adds padding; both sides check the sizes.
#ifndef INFERNO_METAL_ARGS_H
#define INFERNO_METAL_ARGS_H

#ifdef __METAL_VERSION__
typedef int args_int;
typedef uint args_uint;
typedef ulong args_ulong;
#else
#include <cstdint>
namespace inferno::metal {
using args_int = int32_t;
using args_uint = uint32_t;
using args_ulong = uint64_t;
#endif

// A weight in the planes of weight_planes.h: where each begins in its buffer, in bytes.
struct PlaneArgs {
  args_ulong q;
  args_ulong h;
  args_ulong s;
  args_ulong d;
  args_uint groups;      // of 32 values in a row; quantized types
  args_uint row_stride;  // bytes from row to row of q; plain types
  args_uint rows;
  args_uint cols;
};
static_assert(sizeof(PlaneArgs) == 48, "no padding");

// out [tokens, rows] = x [tokens, cols] * weight^T (+ bias) (+ residual); with x_rows, token t is row x_rows[t] of x
struct LinearArgs {
  PlaneArgs weight;
  args_uint has_bias;
  args_uint has_residual;
  args_uint has_x_rows;
  args_uint tokens;
};
static_assert(sizeof(LinearArgs) == 64, "no padding");

// out [ids, cols] = rows ids of the weight * scale
struct EmbedArgs {
  PlaneArgs weight;
  float scale;
  args_uint padding;
};
static_assert(sizeof(EmbedArgs) == 56, "no padding");

// out of pair p (linear_pairs.metal) = matrix of p * x of p (+ bias of that matrix)
struct PairArgs {
  PlaneArgs weight;    // of all matrices under each other; rows: of one
  args_ulong x_token;  // elements between tokens, and between slots
  args_ulong x_slot;
  args_ulong out_token;
  args_ulong out_slot;
  args_uint tokens;
  args_uint slots;
  args_uint has_ids;
  args_uint has_bias;
};
static_assert(sizeof(PairArgs) == 96, "no padding");

struct RmsNormArgs {  // rows of `cols`; a threadgroup each
  args_uint cols;
  args_uint stride;  // elements between rows, of x and of out
  args_uint has_weight;
  float eps;
};
static_assert(sizeof(RmsNormArgs) == 16, "no padding");

struct LayerNormArgs {  // rows of `cols`; a threadgroup each
  args_uint cols;
  args_uint has_bias;
  float eps;
};
static_assert(sizeof(LayerNormArgs) == 12, "no padding");

// In place: norm(x) * silu(z), or norm(x * silu(z)), of each `cols` columns of a row; a threadgroup each
struct GatedNormArgs {
  args_uint cols;
  args_uint weight_cols;  // that the weight has: cols, or those of the whole row
  args_uint gates_first;
  float eps;
};
static_assert(sizeof(GatedNormArgs) == 16, "no padding");

struct AddArgs {  // element by element
  args_uint count;
  args_uint b_count;  // as many, or those of one row
};
static_assert(sizeof(AddArgs) == 8, "no padding");

struct ActivateArgs {  // element by element
  args_uint count;
  args_uint has_factor;
  args_uint cols;           // of a row
  args_uint factor_stride;  // elements between rows of the factor
  args_uint activation;     // a value of the enum Activation
};
static_assert(sizeof(ActivateArgs) == 20, "no padding");

// out = out_scale * (residual + scale * x), then with a cap cap * tanh(out / cap); element by element
struct FinishArgs {
  args_uint count;
  args_uint has_residual;
  float scale;
  float out_scale;
  float softcap;  // 0: none
};
static_assert(sizeof(FinishArgs) == 20, "no padding");

// The cache as kv_view.h describes it.
struct CacheArgs {
  args_ulong k_row_bytes;
  args_ulong v_row_bytes;
  args_uint page_size;
  args_uint kv_heads;
  args_uint head_dim;
  args_uint value_dim;
};
static_assert(sizeof(CacheArgs) == 32, "no padding");

struct RopeStoreArgs {
  CacheArgs cache;
  args_uint q_heads;
  args_uint rotated_dims;
  args_uint interleaved;  // pairs (2i, 2i + 1) instead of (i, i + n / 2)
  args_uint stores;       // 0: q alone is rotated
};
static_assert(sizeof(RopeStoreArgs) == 48, "no padding");

// Elements [kept, kept + rotated) of each head of out [tokens, heads * (kept + rotated)]: those from x_kept on of the
// same head of x, rotated.
struct RotateEndsArgs {
  args_uint x_token;  // elements between tokens, and between heads
  args_uint x_head;
  args_uint x_kept;
  args_uint heads;
  args_uint kept;
  args_uint rotated;
  args_uint interleaved;
};
static_assert(sizeof(RotateEndsArgs) == 28, "no padding");

struct AttentionArgs {
  CacheArgs cache;
  float scale;
  float softcap;    // 0: none
  args_int window;  // 0: none
  args_uint q_heads;
  args_uint max_pages;
  args_uint splits;  // parts that the positions of a sequence are cut into
  args_uint has_sinks;
  args_uint gate;             // 0: none, 1: one per element of the output, 2: one per head
  args_uint gate_activation;  // a value of the enum Activation
  args_uint tokens;
};
static_assert(sizeof(AttentionArgs) == 72, "no padding");

// As Routing of op_args.h.
struct RouteArgs {
  args_uint experts;
  args_uint used;
  args_uint score;  // a value of the enum RouterScore
  args_uint normalize;
  args_uint groups;
  args_uint groups_used;
  args_uint has_selection_bias;
  args_uint has_expert_scale;
  float scale;
  float logit_scale;
};
static_assert(sizeof(RouteArgs) == 40, "no padding");

struct SortPairsArgs {
  args_uint pairs;
  args_uint experts;
};
static_assert(sizeof(SortPairsArgs) == 8, "no padding");

// What follows the products of experts (MoeMlpArgs of op_args.h); a threadgroup per token.
struct ExpertSumArgs {
  args_uint cols;
  args_uint used;
  args_uint has_experts_norm;
  args_uint has_shared;
  args_uint has_shared_gate;
  args_uint has_post_norm;
  args_uint has_residual;
  float eps;
  float residual_scale;
  float out_scale;
};
static_assert(sizeof(ExpertSumArgs) == 40, "no padding");

struct ShortConvArgs {
  args_uint channels;
  args_uint taps;
  args_uint has_factor;
  args_uint has_bias;
  args_uint has_gate;
  args_uint silu;
};
static_assert(sizeof(ShortConvArgs) == 24, "no padding");

struct DeltaNetArgs {
  args_uint k_heads;
  args_uint v_heads;
  args_uint head_dim;
  args_uint grouped;
};
static_assert(sizeof(DeltaNetArgs) == 16, "no padding");

struct Mamba2Args {
  args_uint heads;
  args_uint head_dim;
  args_uint state_size;
  args_uint groups;
};
static_assert(sizeof(Mamba2Args) == 16, "no padding");

// out [m, p] = a [m, n] * b [n, p]
struct MatmulArgs {
  args_uint m;
  args_uint n;
  args_uint p;
};
static_assert(sizeof(MatmulArgs) == 12, "no padding");

struct SampleArgs {
  args_uint vocabulary;
  args_uint chunks;         // of sample.metal in a row
  args_uint allowed_words;  // of a bitset
  args_uint has_logprobs;
};
static_assert(sizeof(SampleArgs) == 16, "no padding");

// SampleRow of backend/sampling.h as it is uploaded; the seed in halves, because rows begin at multiples of 4 bytes.
struct SampleRowArgs {
  float temperature;
  args_int top_k;
  float top_p;
  float min_p;
  float repeat_penalty;
  float presence_penalty;
  float frequency_penalty;
  args_int penalty_window;
  args_uint seed_low;
  args_uint seed_high;
  args_int sample_index;
  args_int position;
  args_int edits_begin;
  args_int edits_count;
  args_int allowed;
  args_int top_logprobs;
};
static_assert(sizeof(SampleRowArgs) == 64, "as SampleRow");

struct TokenEditArgs {
  args_int id;
  args_int count;
  float bias;
};
static_assert(sizeof(TokenEditArgs) == 12, "as TokenEdit");

#ifndef __METAL_VERSION__
}  // namespace inferno::metal
#endif
#endif
