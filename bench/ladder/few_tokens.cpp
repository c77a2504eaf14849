// Eight tokens times Q8_0 weights from memory: decoding eight sequences. The weights are stored in groups of 8 rows, in
// two halves of four rows. Two layouts of a half: by fours (a vector has 4 columns of 4 rows, for dot products), or by
// pairs (8 columns of 2 rows, what the matrix instruction reads). The ladder is about memory first: the product of a
// group takes longer than reading it, so reads that never stop are hidden completely.
#include "backend/cpu/kernels/arm/gemm_few.h"
#include "ladder.h"

namespace inferno::ladder {
namespace {

constexpr int kBlocks = 32;  // K = 1024
constexpr int kPairs = 4;
constexpr int64_t kGroups = 20000;  // 174 MB
using Layout = InterleavedBlock<kFormatQ8_0>;
constexpr int64_t kGroupBytes = kBlocks * Layout::kBytes;
using X = FewLayout;

using Sums = FewGroup<kPairs>;
enum class Order { fours, pairs };

struct Tokens {
  std::vector<int8_t> q;
  const int8_t* pair[kPairs];
};

// Blocks [first, first + count) of one half.
template <Order kOrder>
void add_half(const uint8_t* group, int half, const Tokens& x, int first, int count, FewSums<kPairs>& sums) {
  FewSums<kPairs> s = sums;
  for (int b = first; b < first + count; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    int8x16_t w[8];
    unpack_tile<8, true>(block + Layout::kTiles + half * Layout::kTileBytes, w);
    int32x4_t c[2][kPairs] = {};
    multiply_tile<kOrder == Order::pairs, 0, 4>(w, x.pair, b * X::kBlock32, c);
    float32x4_t d[2];
    double_scales(half_of(load_scales(block + Layout::kD), half), d);
    for (int j = 0; j < kPairs; ++j) {
      const float32x4_t dx = vector_f32(x.pair[j] + b * X::kBlock32 + X::kD32);
      for (int i = 0; i < 2; ++i) {
        s.of[i][j] = vfmaq_f32(s.of[i][j], vcvtq_f32_s32(c[i][j]), vmulq_f32(d[i], dx));
      }
    }
  }
  sums = s;
}

void half_by_half(const uint8_t* group, const Tokens& x, Sums& sums) {
  for (int half = 0; half < 2; ++half) add_half<Order::fours>(group, half, x, 0, kBlocks, sums.half[half]);
}
template <Order kOrder>
void block_by_block(const uint8_t* group, const Tokens& x, Sums& sums) {
  for (int b = 0; b < kBlocks; ++b) {
    for (int half = 0; half < 2; ++half) add_half<kOrder>(group, half, x, b, 1, sums.half[half]);
  }
}
void prefetched(const uint8_t* group, const Tokens& x, Sums& sums) {
  for (int half = 0; half < 2; ++half) {
    for (int b = 0; b < kBlocks; ++b) {
      const uint8_t* next = group + kGroupBytes + (half * kBlocks + b) * Layout::kBytes / 2;
      for (int i = 0; i < Layout::kBytes / 2; i += 64) __builtin_prefetch(next + i);
      add_half<Order::fours>(group, half, x, b, 1, sums.half[half]);
    }
  }
}
void assembly(const uint8_t* group, const Tokens& x, Sums& sums) {
  few_q8_0(group, x.pair[0], x.pair[2], kBlocks, &sums.half[0].of[0][0]);
}

// One output with plain scalar arithmetic: row of the group, token.
float plain(const uint8_t* group, Order order, const Tokens& x, int row, int token) {
  float acc = 0;
  for (int b = 0; b < kBlocks; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    const auto* levels = reinterpret_cast<const int8_t*>(block + Layout::kTiles + row / 4 * Layout::kTileBytes);
    int sum = 0;
    for (int c = 0; c < 32; ++c) {
      const int by_fours = c / 4 * 16 + row % 4 * 4 + c % 4;
      const int by_pairs = (c / 8 * 2 + row % 4 / 2) * 16 + row % 2 * 8 + c % 8;
      const int w = levels[order == Order::fours ? by_fours : by_pairs];
      sum += w * x.pair[token / 2][b * X::kBlock32 + c / 8 * X::kStep + token % 2 * 8 + c % 8];
    }
    __fp16 d;
    std::memcpy(&d, block + Layout::kD + 2 * row, 2);
    float dx;
    std::memcpy(&dx, x.pair[token / 2] + b * X::kBlock32 + X::kD32 + 4 * (token % 2), 4);
    acc = std::fma(static_cast<float>(sum), static_cast<float>(d) * dx, acc);
  }
  return acc;
}

bool step(const char* name, void (*kernel)(const uint8_t*, const Tokens&, Sums&), Order order,
          const std::vector<uint8_t>& weights, const Tokens& x) {
  std::vector<float> got;
  std::vector<float> want;
  Sums sums = {};
  kernel(weights.data(), x, sums);
  for (int row = 0; row < 8; ++row) {
    for (int token = 0; token < 2 * kPairs; ++token) {
      got.push_back(sums.half[row / 4].of[row % 4 / 2][token / 2][row % 2 * 2 + token % 2]);
      want.push_back(plain(weights.data(), order, x, row, token));
    }
  }
  const bool right = same(got, want);
  const auto rate = [&](int64_t groups, int64_t repeat) {
    const double seconds = min_seconds(5, [&] {
      for (int64_t g = 0; g < groups * repeat; ++g) {
        Sums some = {};
        kernel(weights.data() + g % groups * kGroupBytes, x, some);
        __asm__ volatile("" ::"r"(&some) : "memory");
      }
    });
    return 2.0 * static_cast<double>(groups * repeat) * 8 * 2 * kPairs * kBlocks * 32 / seconds / 1e9;
  };
  fmt::print("{:45} {} {:5.0f} GOP/s from L1, {:4.0f} from memory\n", name, right ? "right" : "WRONG",
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
  constexpr int64_t kTokens = 2 * kPairs;
  Tokens x{std::vector<int8_t>(static_cast<size_t>(token_pairs_bytes<32, kTokens>(kTokens, kBlocks * 32))), {}};
  for (int8_t& q : x.q) q = static_cast<int8_t>(static_cast<int>(random.next() % 255) - 127);
  for (int j = 0; j < kPairs; ++j) {
    int8_t* pair = x.q.data() + j / 2 * tile_bytes<32, kTokens>(kTokens, kBlocks * 32) + j % 2 * 16;
    x.pair[j] = pair;
    for (int b = 0; b < kBlocks; ++b) {
      const float first = static_cast<float>(random.next() % 1000 + 1) * 1e-4F;
      const float second = static_cast<float>(random.next() % 1000 + 1) * 1e-4F;
      const float d[4] = {first, second, first, second};
      std::memcpy(pair + b * X::kBlock32 + X::kD32, d, sizeof(d));
    }
  }
  bool right = true;
  right &= step("one half of the group after the other", half_by_half, Order::fours, weights, x);
  right &= step("the same, the next group prefetched", prefetched, Order::fours, weights, x);
  right &= step("both halves of a block, block by block", block_by_block<Order::fours>, Order::fours, weights, x);
  right &= step("the same, rows by pairs", block_by_block<Order::pairs>, Order::pairs, weights, x);
  right &= step("rows by pairs, assembly (in use)", assembly, Order::pairs, weights, x);
  return right ? 0 : 1;
}

}  // namespace
}  // namespace inferno::ladder

int main() {
  return inferno::ladder::run();
}
