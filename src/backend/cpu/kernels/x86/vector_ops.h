// Vector ops. An element is computed the same way wherever it is in a row, so results do not depend on how work is
// split.
#pragma once

#include "backend/cpu/kernels/x86/floats.h"

namespace inferno {
namespace {

// out[i] = f(a[i], b[i])
template <typename F>
inline void map(const float* a, const float* b, float* out, int64_t n, F f) {
  int64_t i = 0;
  for (; i + 2 * kWide <= n; i += 2 * kWide) {
    const Wide low = f(wide_load(a + i), wide_load(b + i));
    const Wide high = f(wide_load(a + i + kWide), wide_load(b + i + kWide));
    wide_store(out + i, low);
    wide_store(out + i + kWide, high);
  }
  for (; i < n; i += kWide) {
    wide_store_some(out + i, f(wide_load_some(a + i, n - i), wide_load_some(b + i, n - i)), n - i);
  }
}

inline Wide silu_f32(Wide x) {
  return wide_div(x, wide_add(wide_set(1.0F), exp_f32(wide_mul(x, wide_set(-1.0F)))));
}

inline void add(const float* a, const float* b, float* out, int64_t n) noexcept {
  map(a, b, out, n, [](Wide x, Wide y) { return wide_add(x, y); });
}
inline void hadamard(const float* a, const float* b, float* out, int64_t n) noexcept {
  map(a, b, out, n, [](Wide x, Wide y) { return wide_mul(x, y); });
}
inline void silu(const float* x, float* out, int64_t n) noexcept {
  map(x, x, out, n, [](Wide v, Wide) { return silu_f32(v); });
}
inline void swiglu(const float* gate, const float* up, float* out, int64_t n) noexcept {
  map(gate, up, out, n, [](Wide g, Wide u) { return wide_mul(silu_f32(g), u); });
}
// x / (1 + e^-2u), u = sqrt(2 / pi) * (x + 0.044715 x^3).
inline Wide gelu_tanh_f32(Wide x) {
  const Wide slope = wide_fma(wide_mul(x, x), wide_set(0.044715F), wide_set(1.0F));
  const Wide minus_2u = wide_mul(wide_mul(x, slope), wide_set(-1.5957691216F));
  return wide_div(x, wide_add(wide_set(1.0F), exp_f32(minus_2u)));
}
inline void gelu_tanh(const float* x, float* out, int64_t n) noexcept {
  map(x, x, out, n, [](Wide v, Wide) { return gelu_tanh_f32(v); });
}
inline void gelu_tanh_gated(const float* x, const float* factor, float* out, int64_t n) noexcept {
  map(x, factor, out, n, [](Wide v, Wide f) { return wide_mul(gelu_tanh_f32(v), f); });
}
inline void scale(const float* x, float s, float* out, int64_t n) noexcept {
  map(x, x, out, n, [s](Wide v, Wide) { return wide_mul(v, wide_set(s)); });
}
inline void saxpy(float s, const float* x, float* y, int64_t n) noexcept {
  map(x, y, y, n, [s](Wide v, Wide sum) { return wide_fma(v, wide_set(s), sum); });
}

inline float dot(const float* a, const float* b, int64_t n) noexcept {
  __m256 s[4] = {};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (int j = 0; j < 4; ++j) {
      s[j] = _mm256_fmadd_ps(_mm256_loadu_ps(a + i + 8 * j), _mm256_loadu_ps(b + i + 8 * j), s[j]);
    }
  }
  for (; i < n; i += 8) s[0] = _mm256_fmadd_ps(load_some(a + i, n - i), load_some(b + i, n - i), s[0]);
  return sum_lanes(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
}

// In double, as in the scalar table: the norms of every layer depend on this sum.
inline float sum_squares(const float* x, int64_t n) noexcept {
#if defined(__AVX512F__)
  __m512d s[4] = {};
  const auto add_eight = [](__m256 v, __m512d& to) {
    const __m512d wide = _mm512_cvtps_pd(v);
    to = _mm512_fmadd_pd(wide, wide, to);
  };
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (int j = 0; j < 4; ++j) add_eight(_mm256_loadu_ps(x + i + 8 * j), s[j]);
  }
  for (; i < n; i += 8) add_eight(load_some(x + i, n - i), s[0]);
  const __m512d sums = _mm512_add_pd(_mm512_add_pd(s[0], s[1]), _mm512_add_pd(s[2], s[3]));
  const __m256d all = _mm256_add_pd(_mm512_castpd512_pd256(sums), _mm512_extractf64x4_pd(sums, 1));
#else
  __m256d s[4] = {};
  const auto add_eight = [](__m256 v, __m256d* to) {
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
    to[0] = _mm256_fmadd_pd(low, low, to[0]);
    to[1] = _mm256_fmadd_pd(high, high, to[1]);
  };
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    add_eight(_mm256_loadu_ps(x + i), s);
    add_eight(_mm256_loadu_ps(x + i + 8), s + 2);
  }
  for (; i < n; i += 8) add_eight(load_some(x + i, n - i), s);
  const __m256d all = _mm256_add_pd(_mm256_add_pd(s[0], s[1]), _mm256_add_pd(s[2], s[3]));
#endif
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(all), _mm256_extractf128_pd(all, 1));
  return static_cast<float>(_mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two))));
}

inline void rms_norm(const float* x, const float* weight, float eps, float* out, int64_t n) noexcept {
  const float factor = 1.0F / __builtin_sqrtf(sum_squares(x, n) / static_cast<float>(n) + eps);
  map(x, weight, out, n, [factor](Wide v, Wide w) { return wide_mul(wide_mul(v, wide_set(factor)), w); });
}

inline void softmax(const float* x, float* out, int64_t n) noexcept {
  const Wide lowest = wide_set(-__builtin_inff());
  Wide top = lowest;
  for (int64_t i = 0; i < n; i += kWide) {
    const Wide v = wide_load_some(x + i, n - i);
    top = wide_max(top, n - i < kWide ? wide_first(v, n - i, lowest) : v);
  }
  const float most = wide_largest(top);
  map(x, x, out, n, [most](Wide v, Wide) { return exp_f32(wide_add(v, wide_set(-most))); });
  Wide sums = wide_set(0);
  for (int64_t i = 0; i < n; i += kWide) sums = wide_add(sums, wide_load_some(out + i, n - i));
  const float total = wide_sum(sums);
  map(out, out, out, n, [total](Wide v, Wide) { return wide_div(v, wide_set(total)); });
}

inline void rotate_one(float& a, float& b, const float* cos_sin) {
  const float x = a;
  a = x * cos_sin[0] - b * cos_sin[1];
  b = x * cos_sin[1] + b * cos_sin[0];
}

// Eight (cos, sin) pairs, deinterleaved. The order of the lanes is that of the instruction; `in_order` restores the
// plain one.
struct CosSin {
  __m256 cos;
  __m256 sin;
};
inline __m256 in_order(__m256 v) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}
inline CosSin split_pairs(const float* pairs) {
  const __m256 low = _mm256_loadu_ps(pairs);
  const __m256 high = _mm256_loadu_ps(pairs + 8);
  return {_mm256_shuffle_ps(low, high, 0x88), _mm256_shuffle_ps(low, high, 0xdd)};
}

inline void rope_half_split(float* head, const float* cos_sin, int64_t pairs) noexcept {
  int64_t i = 0;
  for (; i + 8 <= pairs; i += 8) {
    const CosSin c = split_pairs(cos_sin + 2 * i);
    const __m256 cos = in_order(c.cos);
    const __m256 sin = in_order(c.sin);
    const __m256 a = _mm256_loadu_ps(head + i);
    const __m256 b = _mm256_loadu_ps(head + i + pairs);
    _mm256_storeu_ps(head + i, _mm256_sub_ps(_mm256_mul_ps(a, cos), _mm256_mul_ps(b, sin)));
    _mm256_storeu_ps(head + i + pairs, _mm256_add_ps(_mm256_mul_ps(a, sin), _mm256_mul_ps(b, cos)));
  }
  for (; i < pairs; ++i) rotate_one(head[i], head[i + pairs], cos_sin + 2 * i);
}
inline void rope_interleaved(float* head, const float* cos_sin, int64_t pairs) noexcept {
  int64_t i = 0;
  for (; i + 4 <= pairs; i += 4) {
    const __m256 v = _mm256_loadu_ps(head + 2 * i);
    const __m256 c = _mm256_loadu_ps(cos_sin + 2 * i);
    const __m256 swapped = _mm256_permute_ps(v, 0xb1);
    // even: a cos - b sin, odd: b cos + a sin
    _mm256_storeu_ps(head + 2 * i, _mm256_addsub_ps(_mm256_mul_ps(v, _mm256_moveldup_ps(c)),
                                                    _mm256_mul_ps(swapped, _mm256_movehdup_ps(c))));
  }
  for (; i < pairs; ++i) rotate_one(head[2 * i], head[2 * i + 1], cos_sin + 2 * i);
}

// kRows rows x 16 columns of the product; each output one chain in ascending n.
template <int kRows>
inline void matmul_block(const float* a, const float* b, float* out, int64_t n, int64_t p, int64_t columns) {
  __m256 s[kRows][2] = {};
  for (int64_t i = 0; i < n; ++i) {
    const __m256 low = load_some(b + i * p, columns);
    const __m256 high = columns > 8 ? load_some(b + i * p + 8, columns - 8) : _mm256_setzero_ps();
    for (int r = 0; r < kRows; ++r) {
      const __m256 factor = _mm256_set1_ps(a[r * n + i]);
      s[r][0] = _mm256_fmadd_ps(low, factor, s[r][0]);
      s[r][1] = _mm256_fmadd_ps(high, factor, s[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    store_some(out + r * p, s[r][0], columns);
    if (columns > 8) store_some(out + r * p + 8, s[r][1], columns - 8);
  }
}

inline void matmul(const float* a, const float* b, float* out, int64_t n, int64_t p, int64_t row_begin,
                   int64_t row_end) noexcept {
  for (int64_t c = 0; c < p; c += 16) {
    const int64_t columns = p - c < 16 ? p - c : 16;
    int64_t r = row_begin;
    for (; r + 4 <= row_end; r += 4) matmul_block<4>(a + r * n, b + c, out + r * p + c, n, p, columns);
    for (; r < row_end; ++r) matmul_block<1>(a + r * n, b + c, out + r * p + c, n, p, columns);
  }
}

// ---- rows of a cache

inline void store_bf16(const float* x, void* row, int64_t n) noexcept {
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(round_to_bf16(load_some(x + i, n - i))), 16);
    const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    store_some_u16(static_cast<uint16_t*>(row) + i, halves, n - i);
  }
}
inline void store_f16(const float* x, void* row, int64_t n) noexcept {
  for (int64_t i = 0; i < n; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(load_some(x + i, n - i), _MM_FROUND_TO_NEAREST_INT);
    store_some_u16(static_cast<uint16_t*>(row) + i, halves, n - i);
  }
}
inline void load_bf16_row(const void* row, float* x, int64_t n) noexcept {
  const auto* from = static_cast<const uint16_t*>(row);
  int64_t i = 0;
  for (; i + kWide <= n; i += kWide) wide_store(x + i, wide_from_bf16(from + i));
  for (; i < n; i += 8) store_some(x + i, bf16_to_f32(load_some_u16(from + i, n - i)), n - i);
}
inline void load_f16_row(const void* row, float* x, int64_t n) noexcept {
  const auto* from = static_cast<const uint16_t*>(row);
  for (int64_t i = 0; i < n; i += 8) store_some(x + i, _mm256_cvtph_ps(load_some_u16(from + i, n - i)), n - i);
}
// Blocks of 34 bytes: an f16 scale, 32 levels.
inline void load_q8_0_row(const void* row, float* x, int64_t n) noexcept {
  const auto* from = static_cast<const uint8_t*>(row);
  for (int64_t b = 0; b < n / 32; ++b, from += 34) {
    const __m256 d = _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(from[0] | (from[1] << 8))));
    for (int i = 0; i < 32; i += 8) {
      const __m128i eight = _mm_loadl_epi64(static_cast<const __m128i*>(static_cast<const void*>(from + 2 + i)));
      _mm256_storeu_ps(x + b * 32 + i, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)), d));
    }
  }
}

inline void merge_span(float* m, float* l, float* o, float span_m, float span_l, const float* span_o,
                       int64_t head_dim) noexcept {
  const float top = *m > span_m ? *m : span_m;
  if (top == -__builtin_inff()) return;  // neither side has seen a position
  const float keep = exp_f32(*m - top);
  const float take = exp_f32(span_m - top);
  *m = top;
  *l = *l * keep + span_l * take;
  map(o, span_o, o, head_dim, [keep, take](Wide old, Wide span) {
    return wide_add(wide_mul(old, wide_set(keep)), wide_mul(span, wide_set(take)));
  });
}

inline void fill_vector_ops(KernelTable& table) {
  table.add = add;
  table.hadamard = hadamard;
  table.silu = silu;
  table.swiglu = swiglu;
  table.activate[static_cast<int>(KernelActivation::silu)] = silu;
  table.gated[static_cast<int>(KernelActivation::silu)] = swiglu;
  table.activate[static_cast<int>(KernelActivation::gelu_tanh)] = gelu_tanh;
  table.gated[static_cast<int>(KernelActivation::gelu_tanh)] = gelu_tanh_gated;
  table.scale = scale;
  table.saxpy = saxpy;
  table.dot = dot;
  table.sum_squares = sum_squares;
  table.rms_norm = rms_norm;
  table.softmax = softmax;
  table.rope_half_split = rope_half_split;
  table.rope_interleaved = rope_interleaved;
  table.matmul = matmul;
  table.merge_span = merge_span;
  const auto at = [](DType dtype) { return static_cast<int>(dtype); };
  table.store_row[at(DType::bf16)] = store_bf16;
  table.store_row[at(DType::f16)] = store_f16;
  table.load_row[at(DType::bf16)] = load_bf16_row;
  table.load_row[at(DType::f16)] = load_f16_row;
  table.load_row[at(DType::q8_0)] = load_q8_0_row;
}

}  // namespace
}  // namespace inferno
