// The inner tile of the 8-bit matrix product with one scale per 32 columns (Q8_0): rows x tokens results, K = 1024, all
// in the L1 cache. Per block of 32 columns every 2 x 2 result costs 4 matrix instructions and then, for the
// scales: a fresh sum, a conversion to f32, the product of the two scales and a fused multiply-add. The ladder is about
// making that rest cheap.
#include <arm_neon.h>

#include "ladder.h"

namespace inferno::ladder {
namespace {

constexpr int kBlocks = 32;

// Row pairs or token pairs: per block, for each 8 columns, the pairs; then the scales doubled for a 2 x 2 result.
struct Side {
  int pairs;
  std::vector<int8_t> q;    // [block][4 steps][pairs][2][8]
  std::vector<float> d;     // [block][pairs][4]
  std::vector<float> once;  // [block][2 * pairs]
};

Side random_side(int pairs, bool rows, Random& random) {
  Side s{pairs, std::vector<int8_t>(static_cast<size_t>(kBlocks * 64 * pairs)),
         std::vector<float>(static_cast<size_t>(kBlocks * pairs * 4)),
         std::vector<float>(static_cast<size_t>(kBlocks * pairs * 2))};
  for (int8_t& q : s.q) q = static_cast<int8_t>(static_cast<int>(random.next() % 255) - 127);
  for (size_t i = 0; i < s.once.size(); ++i) {
    s.once[i] = static_cast<float>(random.next() % 1000 + 1) * 1e-4F;
  }
  for (size_t pair = 0; pair < s.once.size() / 2; ++pair) {
    const float a = s.once[2 * pair];
    const float b = s.once[2 * pair + 1];
    const float doubled[4] = {a, rows ? a : b, rows ? b : a, b};
    std::copy_n(doubled, 4, s.d.data() + 4 * pair);
  }
  return s;
}

// out[row pair][token pair][4]
std::vector<float> plain_loops(const Side& w, const Side& x) {
  std::vector<float> out;
  for (int i = 0; i < w.pairs; ++i) {
    for (int j = 0; j < x.pairs; ++j) {
      for (int e = 0; e < 4; ++e) {
        float acc = 0;
        for (int b = 0; b < kBlocks; ++b) {
          int sum = 0;
          for (int c = 0; c < 32; ++c) {
            const auto at = [&](const Side& s, int pair, int which) {
              return s.q[static_cast<size_t>((((b * 4 + c / 8) * s.pairs + pair) * 2 + which) * 8 + c % 8)];
            };
            sum += at(w, i, e / 2) * at(x, j, e % 2);
          }
          const float scale = w.once[static_cast<size_t>((b * w.pairs + i) * 2 + e / 2)] *
                              x.once[static_cast<size_t>((b * x.pairs + j) * 2 + e % 2)];
          acc = std::fma(static_cast<float>(sum), scale, acc);
        }
        out.push_back(acc);
      }
    }
  }
  return out;
}

enum class Fresh { copied_zero, renamed_zero, bias };

int32x4_t fresh(Fresh kind, int32x4_t copied) {
  if (kind == Fresh::renamed_zero) {
    int32x4_t zero;
    __asm__ volatile("movi %0.2d, #0" : "=w"(zero));
    return zero;
  }
  __asm__ volatile("" : "+w"(copied));
  return copied;
}

template <int kRows, int kTokens, Fresh kFresh>
__attribute__((noinline)) void tile(const Side& w, const Side& x, float* out) {
  const float32x4_t bias = vdupq_n_f32(0x1.8p23F);
  const int32x4_t start = kFresh == Fresh::bias ? vreinterpretq_s32_f32(bias) : vdupq_n_s32(0);
  float32x4_t acc[kRows][kTokens] = {};
  for (int b = 0; b < kBlocks; ++b) {
    const int8_t* wq = w.q.data() + b * 64 * kRows;
    const int8_t* xq = x.q.data() + b * 64 * kTokens;
    int32x4_t c[kRows][kTokens];
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kTokens; ++j) c[i][j] = fresh(kFresh, start);
    }
    for (int s = 0; s < 4; ++s) {
      int8x16_t token[kTokens];
      for (int j = 0; j < kTokens; ++j) token[j] = vld1q_s8(xq + (s * kTokens + j) * 16);
      for (int i = 0; i < kRows; ++i) {
        const int8x16_t row = vld1q_s8(wq + (s * kRows + i) * 16);
        for (int j = 0; j < kTokens; ++j) c[i][j] = vmmlaq_s32(c[i][j], row, token[j]);
      }
    }
    for (int i = 0; i < kRows; ++i) {
      const float32x4_t dw = vld1q_f32(w.d.data() + (b * kRows + i) * 4);
      for (int j = 0; j < kTokens; ++j) {
        const float32x4_t dx = vld1q_f32(x.d.data() + (b * kTokens + j) * 4);
        // With the bias as first value the sum is already a float's mantissa: a subtraction instead of a conversion.
        const float32x4_t sum =
            kFresh == Fresh::bias ? vsubq_f32(vreinterpretq_f32_s32(c[i][j]), bias) : vcvtq_f32_s32(c[i][j]);
        acc[i][j] = vfmaq_f32(acc[i][j], sum, vmulq_f32(dw, dx));
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kTokens; ++j) vst1q_f32(out + (i * kTokens + j) * 4, acc[i][j]);
  }
}

// Only the matrix instructions: the limit.
__attribute__((noinline)) void limit(int n) {
  for (int i = 0; i < n; ++i) {
    __asm__ volatile(
        "smmla v0.4s, v30.16b, v31.16b\n smmla v1.4s, v30.16b, v31.16b\n smmla v2.4s, v30.16b, v31.16b\n"
        "smmla v3.4s, v30.16b, v31.16b\n smmla v4.4s, v30.16b, v31.16b\n smmla v5.4s, v30.16b, v31.16b\n"
        "smmla v6.4s, v30.16b, v31.16b\n smmla v7.4s, v30.16b, v31.16b\n smmla v16.4s, v30.16b, v31.16b\n"
        "smmla v17.4s, v30.16b, v31.16b\n smmla v18.4s, v30.16b, v31.16b\n smmla v19.4s, v30.16b, v31.16b\n"
        "smmla v20.4s, v30.16b, v31.16b\n smmla v21.4s, v30.16b, v31.16b\n smmla v22.4s, v30.16b, v31.16b\n"
        "smmla v23.4s, v30.16b, v31.16b" ::
            : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23");
  }
}

constexpr int kRuns = 40;
constexpr int kRepeat = 8000;

template <int kRows, int kTokens, Fresh kFresh>
bool step(const char* name, double limit_rate) {
  Random random;
  const Side w = random_side(kRows, true, random);
  const Side x = random_side(kTokens, false, random);
  std::vector<float> out(static_cast<size_t>(kRows * kTokens * 4));
  tile<kRows, kTokens, kFresh>(w, x, out.data());
  const bool right = same(out, plain_loops(w, x));
  const double seconds = min_seconds(kRuns, [&] {
    for (int i = 0; i < kRepeat; ++i) tile<kRows, kTokens, kFresh>(w, x, out.data());
  });
  const double rate = 2.0 * kRepeat * kRows * 2 * kTokens * 2 * kBlocks * 32 / seconds / 1e9;
  fmt::print("{:50} {} {:5.0f} GOP/s {:3.0f} %\n", name, right ? "right" : "WRONG", rate, 100 * rate / limit_rate);
  return right;
}

int run() {
  const double seconds = min_seconds(kRuns, [] { limit(1000000); });
  const double rate = 1e6 * 16 * 64 / seconds / 1e9;
  fmt::print("{:50}       {:5.0f} GOP/s\n", "matrix instructions alone", rate);
  bool right = true;
  right &= step<2, 2, Fresh::copied_zero>("4 x 4, copied zero, conversion", rate);
  right &= step<4, 2, Fresh::copied_zero>("8 x 4, copied zero, conversion", rate);
  right &= step<4, 2, Fresh::bias>("8 x 4, copied bias, subtraction", rate);
  right &= step<4, 2, Fresh::renamed_zero>("8 x 4, renamed zero, conversion", rate);
  right &= step<4, 3, Fresh::renamed_zero>("8 x 6, renamed zero, conversion (in use, assembly)", rate);
  right &= step<4, 4, Fresh::renamed_zero>("8 x 8, renamed zero, conversion: spills", rate);
  return right ? 0 : 1;
}

}  // namespace
}  // namespace inferno::ladder

int main() {
  return inferno::ladder::run();
}
