#include "synthetic/random_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "quant/quant.h"

namespace inferno {
namespace {

// Enough that no two rows of a few blocks are equal, few enough that a pool of the slowest type takes milliseconds.
constexpr size_t kPoolValues = size_t{1} << 17;

}  // namespace

uint64_t random_bits(uint64_t seed, uint64_t n) {  // splitmix64
  uint64_t x = seed * 0xD1342543DE82EF95ULL + (n + 1) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

float random_normal(uint64_t seed, uint64_t n) {
  // The sum of four uniform values of 16 bits is normal enough.
  const uint64_t bits = random_bits(seed, n);
  float sum = 0;
  for (int shift = 0; shift < 64; shift += 16) sum += static_cast<float>((bits >> shift) & 0xFFFF) / 65536.0F - 0.5F;
  return sum * 1.7320508F;
}

BlockPool::BlockPool(DType dtype, int64_t cols, uint64_t seed) {
  // Plain types are drawn in pieces of up to 32 values.
  const int64_t values = std::max<int64_t>(dtype_info(dtype).block_size, std::gcd(cols, int64_t{32}));
  block_bytes_ = static_cast<size_t>(row_bytes(dtype, values));
  count_ = kPoolValues / static_cast<size_t>(values);
  blocks_.resize(count_ * block_bytes_);
  const float deviation = 1.0F / std::sqrt(static_cast<float>(cols));
  std::vector<float> block(static_cast<size_t>(values));
  for (size_t i = 0; i < count_; ++i) {
    for (size_t j = 0; j < block.size(); ++j) block[j] = deviation * random_normal(seed, i * block.size() + j);
    quantize_row(dtype, block.data(), blocks_.data() + i * block_bytes_, values);
  }
}

void BlockPool::read(uint64_t seed, uint64_t begin, std::span<std::byte> out) const {
  uint64_t index = begin / block_bytes_;
  size_t skip = begin % block_bytes_;
  for (size_t done = 0; done < out.size(); ++index) {
    const size_t block = random_bits(seed, index) % count_;
    const size_t bytes = std::min(block_bytes_ - skip, out.size() - done);
    std::memcpy(out.data() + done, blocks_.data() + block * block_bytes_ + skip, bytes);
    done += bytes;
    skip = 0;
  }
}

}  // namespace inferno
