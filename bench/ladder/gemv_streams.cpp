// Q8_0 matrix-vector product from memory, one thread: the layout of rows and how many distant streams are read in
// lockstep. 128 MiB of weights, K = 1024.
#include <arm_neon.h>

#include "ladder.h"

namespace inferno::ladder {
namespace {

constexpr int64_t kK = 1024;
constexpr int64_t kBlocks = kK / 32;
constexpr int64_t kRows = 122880;
constexpr int64_t kBlockBytes = 34;

struct Activations {
  std::vector<int8_t> q;
  std::vector<float> d;
};

float half_to_float(const uint8_t* p) {
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))), 0);
}

// The file's own layout: row after row, blocks of scale and 32 levels.
std::vector<uint8_t> canonical_rows(Random& random) {
  std::vector<uint8_t> rows(static_cast<size_t>(kRows * kBlocks * kBlockBytes));
  for (uint8_t& byte : rows) byte = static_cast<uint8_t>(random.next());
  for (int64_t b = 0; b < kRows * kBlocks; ++b) rows[static_cast<size_t>(b * kBlockBytes + 1)] = 0x2c;
  return rows;
}

// kGroup rows interleaved: per block the scales, then for each 4 columns the rows.
template <int kGroup>
std::vector<uint8_t> interleave(const std::vector<uint8_t>& rows) {
  std::vector<uint8_t> out(rows.size());
  for (int64_t g = 0; g < kRows / kGroup; ++g) {
    for (int64_t b = 0; b < kBlocks; ++b) {
      uint8_t* to = out.data() + (g * kBlocks + b) * kGroup * kBlockBytes;
      for (int r = 0; r < kGroup; ++r) {
        const uint8_t* from = rows.data() + ((g * kGroup + r) * kBlocks + b) * kBlockBytes;
        std::memcpy(to + 2 * r, from, 2);
        for (int c = 0; c < 8; ++c) {
          std::memcpy(to + 2 * kGroup + r / 4 * 128 + 16 * c + r % 4 * 4, from + 2 + 4 * c, 4);
        }
      }
    }
  }
  return out;
}

void row_by_row(const uint8_t* w, const Activations& x, float* out) {
  for (int64_t r = 0; r < kRows; ++r) {
    float acc = 0;
    for (int64_t b = 0; b < kBlocks; ++b, w += kBlockBytes) {
      const auto* q = reinterpret_cast<const int8_t*>(w + 2);
      const int8_t* xq = x.q.data() + 32 * b;
      int32x4_t sum = vdotq_s32(vdupq_n_s32(0), vld1q_s8(q), vld1q_s8(xq));
      sum = vdotq_s32(sum, vld1q_s8(q + 16), vld1q_s8(xq + 16));
      acc = std::fma(static_cast<float>(vaddvq_s32(sum)), half_to_float(w) * x.d[static_cast<size_t>(b)], acc);
    }
    out[r] = acc;
  }
}

template <int kGroup, int kStreams>
void interleaved(const uint8_t* w, const Activations& x, float* out) {
  constexpr int64_t kGroupBytes = kGroup * kBlocks * kBlockBytes;
  constexpr int64_t kPart = kRows / kGroup / kStreams;
  constexpr int64_t kTurn = 4;
  for (int64_t g = 0; g < kPart; ++g) {
    float32x4_t acc[kStreams][kGroup / 4] = {};
    for (int64_t first = 0; first < kBlocks; first += kTurn) {
      for (int s = 0; s < kStreams; ++s) {
        for (int64_t b = first; b < first + kTurn; ++b) {
          const uint8_t* block = w + (s * kPart + g) * kGroupBytes + b * kGroup * kBlockBytes;
          const int8x16_t low = vld1q_s8(x.q.data() + 32 * b);
          const int8x16_t high = vld1q_s8(x.q.data() + 32 * b + 16);
          for (int h = 0; h < kGroup / 4; ++h) {
            const auto* q = reinterpret_cast<const int8_t*>(block + 2 * kGroup + 128 * h);
            int32x4_t sum = vdotq_laneq_s32(vdupq_n_s32(0), vld1q_s8(q), low, 0);
            sum = vdotq_laneq_s32(sum, vld1q_s8(q + 16), low, 1);
            sum = vdotq_laneq_s32(sum, vld1q_s8(q + 32), low, 2);
            sum = vdotq_laneq_s32(sum, vld1q_s8(q + 48), low, 3);
            sum = vdotq_laneq_s32(sum, vld1q_s8(q + 64), high, 0);
            sum = vdotq_laneq_s32(sum, vld1q_s8(q + 80), high, 1);
            sum = vdotq_laneq_s32(sum, vld1q_s8(q + 96), high, 2);
            sum = vdotq_laneq_s32(sum, vld1q_s8(q + 112), high, 3);
            const float32x4_t d = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(block + 8 * h)));
            acc[s][h] = vfmaq_f32(acc[s][h], vcvtq_f32_s32(sum), vmulq_n_f32(d, x.d[static_cast<size_t>(b)]));
          }
        }
      }
    }
    for (int s = 0; s < kStreams; ++s) {
      for (int h = 0; h < kGroup / 4; ++h) vst1q_f32(out + (s * kPart + g) * kGroup + 4 * h, acc[s][h]);
    }
  }
}

using Kernel = void (*)(const uint8_t*, const Activations&, float*);

bool step(const char* name, Kernel kernel, const std::vector<uint8_t>& w, const Activations& x,
          const std::vector<float>& want) {
  std::vector<float> out(kRows);
  const double seconds = min_seconds(7, [&] { kernel(w.data(), x, out.data()); });
  const bool right = same(out, want);
  fmt::print("{:44} {} {:5.1f} GB/s\n", name, right ? "right" : "WRONG", static_cast<double>(w.size()) / seconds / 1e9);
  return right;
}

int run() {
  Random random;
  const std::vector<uint8_t> rows = canonical_rows(random);
  Activations x{std::vector<int8_t>(kK), std::vector<float>(kBlocks, 0.01F)};
  for (int8_t& q : x.q) q = static_cast<int8_t>(static_cast<int>(random.next() % 255) - 127);
  std::vector<float> want(kRows);
  for (int64_t r = 0; r < kRows; ++r) {
    float acc = 0;
    for (int64_t b = 0; b < kBlocks; ++b) {
      const uint8_t* block = rows.data() + (r * kBlocks + b) * kBlockBytes;
      int sum = 0;
      const auto* q = reinterpret_cast<const int8_t*>(block + 2);
      for (int i = 0; i < 32; ++i) sum += q[i] * x.q[static_cast<size_t>(32 * b + i)];
      acc = std::fma(static_cast<float>(sum), half_to_float(block) * x.d[static_cast<size_t>(b)], acc);
    }
    want[static_cast<size_t>(r)] = acc;
  }
  bool right = step("the file's layout, row by row", row_by_row, rows, x, want);
  const std::vector<uint8_t> four = interleave<4>(rows);
  right &= step("4 rows interleaved, 1 stream", interleaved<4, 1>, four, x, want);
  right &= step("4 rows interleaved, 4 streams", interleaved<4, 4>, four, x, want);
  const std::vector<uint8_t> eight = interleave<8>(rows);
  right &= step("8 rows interleaved, 1 stream", interleaved<8, 1>, eight, x, want);
  right &= step("8 rows interleaved, 2 streams", interleaved<8, 2>, eight, x, want);
  right &= step("8 rows interleaved, 4 streams (in use)", interleaved<8, 4>, eight, x, want);
  right &= step("8 rows interleaved, 8 streams", interleaved<8, 8>, eight, x, want);
  return right ? 0 : 1;
}

}  // namespace
}  // namespace inferno::ladder

int main() {
  return inferno::ladder::run();
}
