// The functions a CPU instruction set provides. A table starts as a copy of the next lower one and replaces what it
// does better.
//
// A kernel is stateless, allocates nothing, throws nothing, knows no threads, and computes a range of the output, so
// the same function serves one thread or many. This header, the registry of weight formats and intrinsics are all
// that a file compiled with instruction-set flags may include: an inline function shared with other files could be
// compiled here with instructions the machine lacks, and the linker might pick that copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/weight_format.h"

namespace inferno {

// ---- linear ---------------------------------------------------------------------------------------------------------
// out[t][n] = sum over k of x[t][k] * w[n][k]. Weights are packed once at load, activations once per op input.

// The memory layout of a weight's rows: groups of row_group rows, each group contiguous; the last group is padded with
// zero rows.
struct WeightLayout {
  const char* name;
  int64_t row_group;
  int64_t (*group_bytes)(int64_t k);
  // `count` (1 .. row_group) canonical rows -> one group. The group's memory is 64-byte aligned.
  void (*pack)(const void* rows, int64_t count, int64_t k, void* group) noexcept;
  // One canonical row out of its group.
  void (*unpack_row)(const void* group, int64_t row_in_group, int64_t k, void* row) noexcept;
};

// How activations are stored for a kernel: the f32 rows x, converted as the numerics contract says.
struct ActivationLayout {
  const char* name;
  int64_t row_step;                             // threads split the rows at multiples of this
  int64_t (*bytes)(int64_t tokens, int64_t k);  // of the whole buffer, a multiple of 64
  // Rows [begin, end) of x [tokens, k], row t at x + t * x_stride, into the 64-byte aligned buffer of all tokens.
  void (*prepare)(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                  void* buffer) noexcept;
  // Optional: columns [begin, end) of the only row, whole blocks of `block` columns, so that a row can be converted by
  // several threads.
  int64_t block = 0;
  void (*prepare_columns)(const float* x, int64_t k, int64_t begin, int64_t end, void* buffer) noexcept = nullptr;
  // Optional: blocks of tokens can be multiplied on their own, 32 or more of them from a multiple of 16 on. How many a
  // block should have, so that what a kernel does for each block matters little; 0: tokens are not divided.
  int64_t token_block = 0;
  int64_t (*offset)(int64_t token, int64_t k) = nullptr;  // where a block that begins with this token begins
  // Columns [col_begin, col_end), whole blocks of `block`, of rows [begin, end); x is the first of these columns of the
  // first row. With the last row also what pads the buffer.
  void (*prepare_part)(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                       int64_t col_begin, int64_t col_end, void* buffer) noexcept = nullptr;
};

struct MemoryRange {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
};

struct LinearTask {
  const void* weight;       // all groups
  const void* activations;  // prepared, all tokens
  int64_t k;
  int64_t tokens;
  int64_t row_begin, row_end;  // row_begin is a multiple of row_step; row_end too, or the last row
  float* out;                  // out[t * out_stride + row]
  int64_t out_stride;
  bool accumulate;  // the finished product is added to what out holds: one addition, after the whole chain
  void* scratch;    // this thread's, scratch_bytes(k, tokens), 64-byte aligned
  // The ranges to prefetch, one line for each line of weights the kernel reads (a kernel with prefetch_tokens does so):
  // what this thread reads after these rows, most of which have been prefetched before. Null: these rows have not been
  // prefetched, the kernel prefetches them itself.
  const MemoryRange* prefetch = nullptr;
  int64_t prefetch_count = 0;
};

struct LinearKernel {
  const char* name = nullptr;  // null: this table cannot multiply the type
  const WeightLayout* weight = nullptr;
  const ActivationLayout* activation = nullptr;
  int64_t row_step = 1;
  int64_t (*scratch_bytes)(int64_t k, int64_t tokens) = nullptr;
  void (*run)(const LinearTask& task) noexcept = nullptr;
  int64_t prefetch_tokens = 0;  // the kernel prefetches LinearTask::prefetch for up to this many tokens
};

// ---- attention ------------------------------------------------------------------------------------------------------
// The reduction over the cache is split at fixed absolute positions, so that its order depends on nothing else.
inline constexpr int64_t kAttentionSpan = 256;

// One span of one kv head against a block of queries. Per query: m = max of the visible scores, l = sum of
// exp(score - m), o = sum of exp(score - m) * v. A query that sees nothing of the span gets m = -inf, l = 0, o = 0.
struct SpanTask {
  // [queries, head_dim]: the `group` heads of a token are contiguous, tokens are token_stride floats apart.
  const float* q;
  int64_t group;
  int64_t token_stride;
  int64_t queries;
  int64_t head_dim;
  const int32_t* visible;      // [queries] how many of the span's first positions the query sees
  const void* const* k_pages;  // rows of this head, one pointer per page of the span
  const void* const* v_pages;
  int64_t page_size;  // positions per page
  int64_t row_bytes;  // between two positions of a page
  float scale;
  // What this thread is expected to read next, for kernels that prefetch: so many positions of these pages, or none.
  const void* const* next_k_pages;
  const void* const* next_v_pages;
  int64_t next_positions;
  bool prefetched;  // this span was the next of a task before
  float* m;         // [queries]
  float* l;         // [queries]
  float* o;         // [queries, head_dim]
  void* scratch;
};
// Query i of a task. Internal linkage, like every function of this header: see the top.
[[nodiscard]] static inline const float* span_query(const SpanTask& task, int64_t i) {
  return task.q + i / task.group * task.token_stride + i % task.group * task.head_dim;
}

struct AttentionKernel {
  const char* name = nullptr;
  int64_t query_block = 1;  // most queries a call may have
  int64_t (*scratch_bytes)(int64_t queries, int64_t head_dim) = nullptr;
  void (*run)(const SpanTask& task) noexcept = nullptr;
};

// ---- recurrent layers -----------------------------------------------------------------------------------------------
// One head over tokens of one sequence, one after another. All columns of its state are computed alike, whatever is
// beside them.
inline constexpr int64_t kMaxStateColumns = 64;  // that a kernel computes together

// state *= decay; state += k (x) beta * (v - k state); out = q state
struct DeltaTask {
  int64_t tokens;
  int64_t head_dim;           // a multiple of 4
  const float *q, *k;         // [tokens, head_dim]
  const float *decay, *beta;  // [tokens]
  const float* v;             // token t's at v + t * v_stride
  int64_t v_stride;
  float* out;  // token t's at out + t * out_stride
  int64_t out_stride;
  float* state;    // [head_dim, head_dim], keys by values
  float* scratch;  // [head_dim, kMaxStateColumns]
};

// state = decay * state + b (x) step * x; out = c state + skip * x
struct ScanTask {
  int64_t tokens;
  int64_t head_dim;
  int64_t state_size;
  const float *x, *b, *c;  // token t's at x + t * stride
  int64_t stride;
  const float *decay, *step;  // [tokens]
  float skip;
  float* out;  // token t's at out + t * out_stride
  int64_t out_stride;
  float* state;    // [state_size, head_dim]
  float* scratch;  // [state_size, kMaxStateColumns]
};

// ---- the table ------------------------------------------------------------------------------------------------------
// The activations by number, as in the ops' enumeration.
enum class KernelActivation : int { silu, gelu_tanh, gelu_erf, relu_squared, clamped_silu, sigmoid, softplus };
inline constexpr int kKernelActivations = 7;

struct KernelTable {
  const char* name;
  int32_t token_tile;  // Backend::token_tile()

  // Vectors of n floats; out may be an input.
  void (*add)(const float* a, const float* b, float* out, int64_t n) noexcept;
  void (*hadamard)(const float* a, const float* b, float* out, int64_t n) noexcept;
  void (*silu)(const float* x, float* out, int64_t n) noexcept;
  void (*swiglu)(const float* gate, const float* up, float* out, int64_t n) noexcept;
  // f(x), and f(x) * factor, of every activation f.
  void (*activate[kKernelActivations])(const float* x, float* out, int64_t n) noexcept;
  void (*gated[kKernelActivations])(const float* x, const float* factor, float* out, int64_t n) noexcept;
  void (*soft_cap)(const float* x, float cap, float* out, int64_t n) noexcept;  // cap * tanh(x / cap)
  void (*scale)(const float* x, float s, float* out, int64_t n) noexcept;
  void (*saxpy)(float s, const float* x, float* y, int64_t n) noexcept;  // y += s * x
  float (*dot)(const float* a, const float* b, int64_t n) noexcept;
  float (*sum_squares)(const float* x, int64_t n) noexcept;
  void (*rms_norm)(const float* x, const float* weight, float eps, float* out, int64_t n) noexcept;
  void (*softmax)(const float* x, float* out, int64_t n) noexcept;
  // One head in place; cos_sin is the (cos, sin) pairs of its position, `pairs` of them.
  void (*rope_half_split)(float* head, const float* cos_sin, int64_t pairs) noexcept;
  void (*rope_interleaved)(float* head, const float* cos_sin, int64_t pairs) noexcept;
  // Rows [row_begin, row_end) of out [m, p] = a [m, n] * b [n, p].
  void (*matmul)(const float* a, const float* b, float* out, int64_t n, int64_t p, int64_t row_begin,
                 int64_t row_end) noexcept;
  // One row of a cache: n floats to its stored type, and back. Indexed by dtype.
  void (*store_row[kDTypeCount])(const float* x, void* row, int64_t n) noexcept;
  void (*load_row[kDTypeCount])(const void* row, float* x, int64_t n) noexcept;
  // Folds one span's (m, l, o) into the running (m, l, o) of a query.
  void (*merge_span)(float* m, float* l, float* o, float span_m, float span_l, const float* span_o,
                     int64_t head_dim) noexcept;

  void (*delta_rule)(const DeltaTask& task) noexcept;
  void (*state_scan)(const ScanTask& task) noexcept;
  // out[c] = sum over taps of weight[tap][c] * inputs[tap][c], in ascending order; weight is [taps, n].
  void (*convolve)(const float* const* inputs, const float* weight, int64_t taps, float* out, int64_t n) noexcept;

  LinearKernel linear[kDTypeCount];        // by weight dtype
  AttentionKernel attention[kDTypeCount];  // by cache dtype
};

// Each table is filled in by its own file, starting from the one below.
void fill_scalar(KernelTable& table);
void fill_neon(KernelTable& table);
void fill_neon_dotprod(KernelTable& table);
void fill_neon_i8mm_intrinsics(KernelTable& table);
void fill_neon_i8mm(KernelTable& table);
void fill_avx2(KernelTable& table);
void fill_avx512(KernelTable& table);
void fill_avx512_vnni(KernelTable& table);
void fill_amx(KernelTable& table);

}  // namespace inferno
