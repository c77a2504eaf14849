// Eight tokens times Q8_0 weights from memory: decoding eight sequences. The weights lie in groups of 8 rows, made for
// the matrix-vector kernels; two halves of four rows each, which take turns within a block. The ladder is about memory:
// the product of a group takes longer than reading it, so reading should cost nothing, if only it goes on all the time.
#include "backend/cpu/kernels/arm/gemm_few.h"
#include "ladder.h"

namespace inferno::ladder {
namespace {

constexpr int kBlocks = 32;  // K = 1024
constexpr int kPairs = 4;
constexpr int64_t kGroups = 20000;  // 174 MB
using Layout = InterleavedBlock<kFormatQ8_0>;
constexpr int64_t kGroupBytes = kBlocks * Layout::kBytes;
constexpr int64_t kTileBytes = kBlocks * (kPairBlock32 + kPairStep);

using Sums = FewSums<kPairs>[2];

struct Tokens {
  std::vector<int8_t> q;
  const int8_t* pair[kPairs];
};

// Blocks [first, first + count) of one half.
void add_half(const uint8_t* group, int half, const Tokens& x, int first, int count, FewSums<kPairs>& sums) {
  FewSums<kPairs> s = sums;
  for (int b = first; b < first + count; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    int8x16_t w[8];
    unpack_tile<8, true>(block + Layout::kTiles + half * Layout::kTileBytes, w);
    int32x4_t c[2][kPairs] = {};
    multiply_tile<0, 4>(w, x.pair, b * kPairBlock32, c);
    float32x4_t d[2];
    double_scales(half_scales(block + Layout::kD, half), d);
    for (int j = 0; j < kPairs; ++j) {
      const float32x4_t dx = vreinterpretq_f32_s8(vld1q_s8(x.pair[j] + b * kPairBlock32 + kPairD32));
      for (int i = 0; i < 2; ++i) {
        s.of[i][j] = vfmaq_f32(s.of[i][j], vcvtq_f32_s32(c[i][j]), vmulq_f32(d[i], dx));
      }
    }
  }
  sums = s;
}

void half_by_half(const uint8_t* group, const Tokens& x, Sums& sums) {
  for (int half = 0; half < 2; ++half) add_half(group, half, x, 0, kBlocks, sums[half]);
}
void block_by_block(const uint8_t* group, const Tokens& x, Sums& sums) {
  for (int b = 0; b < kBlocks; ++b) {
    for (int half = 0; half < 2; ++half) add_half(group, half, x, b, 1, sums[half]);
  }
}
void prefetched(const uint8_t* group, const Tokens& x, Sums& sums) {
  for (int half = 0; half < 2; ++half) {
    for (int b = 0; b < kBlocks; ++b) {
      const uint8_t* next = group + kGroupBytes + (half * kBlocks + b) * Layout::kBytes / 2;
      for (int i = 0; i < Layout::kBytes / 2; i += 64) __builtin_prefetch(next + i);
      add_half(group, half, x, b, 1, sums[half]);
    }
  }
}
void assembly(const uint8_t* group, const Tokens& x, Sums& sums) {
  few_q8_0(group, x.pair[0], x.pair[3], kBlocks, &sums[0].of[0][0]);
}

// One output with the numbers taken one by one: row of the group, token.
float plain(const uint8_t* group, const Tokens& x, int row, int token) {
  float acc = 0;
  for (int b = 0; b < kBlocks; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    const auto* levels = reinterpret_cast<const int8_t*>(block + Layout::kTiles + row / 4 * Layout::kTileBytes);
    int sum = 0;
    for (int c = 0; c < 32; ++c) {
      const int w = levels[c / 4 * 16 + row % 4 * 4 + c % 4];
      sum += w * x.pair[token / 2][b * kPairBlock32 + c / 8 * kPairStep + token % 2 * 8 + c % 8];
    }
    __fp16 d;
    std::memcpy(&d, block + Layout::kD + 2 * row, 2);
    float dx;
    std::memcpy(&dx, x.pair[token / 2] + b * kPairBlock32 + kPairD32 + 4 * (token % 2), 4);
    acc = std::fma(static_cast<float>(sum), static_cast<float>(d) * dx, acc);
  }
  return acc;
}

bool step(const char* name, void (*kernel)(const uint8_t*, const Tokens&, Sums&), const std::vector<uint8_t>& weights,
          const Tokens& x) {
  std::vector<float> got;
  std::vector<float> want;
  Sums sums = {};
  kernel(weights.data(), x, sums);
  for (int row = 0; row < 8; ++row) {
    for (int token = 0; token < 2 * kPairs; ++token) {
      got.push_back(sums[row / 4].of[row % 4 / 2][token / 2][row % 2 * 2 + token % 2]);
      want.push_back(plain(weights.data(), x, row, token));
    }
  }
  const bool right = same(got, want);
  const auto rate = [&](int64_t groups, int64_t repeat) {
    const double seconds = least_seconds(5, [&] {
      for (int64_t g = 0; g < groups * repeat; ++g) {
        Sums some = {};
        kernel(weights.data() + g % groups * kGroupBytes, x, some);
        __asm__ volatile("" ::"r"(&some) : "memory");
      }
    });
    return 2.0 * static_cast<double>(groups * repeat) * 8 * 2 * kPairs * kBlocks * 32 / seconds / 1e9;
  };
  fmt::print("{:45} {} {:5.0f} GOP/s from the first cache, {:4.0f} from memory\n", name, right ? "right" : "WRONG",
             rate(1, kGroups / 4), rate(kGroups - 1, 1));
  return right;
}

int run() {
  Random random;
  std::vector<uint8_t> weights(static_cast<size_t>(kGroups * kGroupBytes));
  for (uint8_t& byte : weights) byte = static_cast<uint8_t>(random.next());
  for (int64_t b = 0; b < kGroups * kBlocks; ++b) {
    for (int i = 0; i < 8; ++i) {
      const auto d = static_cast<__fp16>(static_cast<float>(random.next() % 1000 + 1) * 1e-4F);
      std::memcpy(weights.data() + b * Layout::kBytes + Layout::kD + 2 * i, &d, 2);
    }
  }
  Tokens x{std::vector<int8_t>(2 * kTileBytes), {}};
  for (int8_t& q : x.q) q = static_cast<int8_t>(static_cast<int>(random.next() % 255) - 127);
  for (int j = 0; j < kPairs; ++j) x.pair[j] = x.q.data() + pair_offset<32>(j, kBlocks * 32);
  for (int b = 0; b < kBlocks; ++b) {
    for (int j = 0; j < kPairs; ++j) {
      const float first = static_cast<float>(random.next() % 1000 + 1) * 1e-4F;
      const float second = static_cast<float>(random.next() % 1000 + 1) * 1e-4F;
      const float d[4] = {first, second, first, second};
      std::memcpy(x.q.data() + pair_offset<32>(j, kBlocks * 32) + b * kPairBlock32 + kPairD32, d, sizeof(d));
    }
  }
  bool right = true;
  right &= step("one half of the group after the other", half_by_half, weights, x);
  right &= step("the same, the next group asked for ahead", prefetched, weights, x);
  right &= step("both halves of a block in turn", block_by_block, weights, x);
  right &= step("both halves in turn, assembly (in use)", assembly, weights, x);
  return right ? 0 : 1;
}

}  // namespace
}  // namespace inferno::ladder

int main() {
  return inferno::ladder::run();
}
