// Rows the tests of this folder share: reproducible bytes and values that need no file.
#pragma once

#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "tensor/dtype.h"

namespace inferno::test {

class Bytes {
 public:
  explicit Bytes(uint32_t seed) : state_(seed) {}
  uint8_t next() {
    state_ = state_ * 1664525U + 1013904223U;
    return static_cast<uint8_t>(state_ >> 24);
  }

 private:
  uint32_t state_;
};

// n values, roughly normal with deviation 1.
inline std::vector<float> normal_row(uint32_t seed, int64_t n) {
  Bytes bytes(seed);
  std::vector<float> row(static_cast<size_t>(n));
  for (float& value : row) {
    int sum = 0;
    for (int i = 0; i < 12; ++i) {
      sum += bytes.next() * 256;
      sum += bytes.next();
    }
    value = static_cast<float>(sum) / 65536.0F - 6.0F;
  }
  return row;
}

// Writes the scales of a block, given as the bits of f16; a scale that is an exponent becomes the low byte of d.
inline void set_scales(DType dtype, uint8_t* block, uint16_t d, uint16_t minimum) {
  const WeightFormat& format = weight_format(dtype);
  std::memcpy(block + format.d, &d, format.d_type == ScaleType::f16 ? 2 : 1);
  if (format.m >= 0) std::memcpy(block + format.m, &minimum, 2);
}

// Random levels and sub-block scales; the f16 scales start at d and minimum and grow by one unit per block.
inline std::vector<uint8_t> random_blocks(DType dtype, uint32_t seed, int64_t n, uint16_t d, uint16_t minimum) {
  std::vector<uint8_t> row(static_cast<size_t>(row_bytes(dtype, n)));
  Bytes bytes(seed);
  for (uint8_t& byte : row) byte = bytes.next();
  const DTypeInfo& info = dtype_info(dtype);
  for (int64_t b = 0; b < n / info.block_size; ++b) {
    set_scales(dtype, row.data() + b * info.block_bytes, static_cast<uint16_t>(d + b),
               static_cast<uint16_t>(minimum + b));
  }
  return row;
}

// What tests know of a format beyond the registry: a row of kGoldenLength values with the exact results of an
// independent implementation for it, and limits of its quantizer.
struct Golden {
  DType dtype;
  uint16_t d;
  uint16_t minimum;
  uint64_t dequantized_hash;        // FNV-1a over the bytes of the dequantized row
  uint32_t dot_bits;                // dot_row with golden_activations()
  double relative_rms;              // most that quantizing normal values may cost
  int lowest_scale, highest_scale;  // of a sub-block
};
inline constexpr Golden kGolden[] = {
    {DType::q8_0, 0x2e66, 0, 0xf74f1ae23f4edcefU, 0xc3cbd95bU, 0.0055, 1, 1},
    {DType::q4_0, 0xae66, 0, 0xf41abcad9c2352aeU, 0x41c9b5acU, 0.082, 1, 1},
    {DType::q4_1, 0x2e66, 0xba3d, 0xbf0dc5a4c7679232U, 0x42ab02f5U, 0.071, 1, 1},
    {DType::q5_0, 0x2e66, 0, 0xf7bee82496bef012U, 0xc313c2a1U, 0.041, 1, 1},
    {DType::q5_1, 0x2e66, 0xba3d, 0x2d34c1c26bc86385U, 0x432ed59cU, 0.035, 1, 1},
    {DType::q2_k, 0x2e66, 0x2a3d, 0xc97bcf06ec762502U, 0xc3809119U, 0.267, 1, 15},
    {DType::q3_k, 0x2e66, 0, 0x69fa09efb0759d0dU, 0x44488749U, 0.147, -32, 31},
    {DType::q4_k, 0x2e66, 0x2a3d, 0xb8d86549d801114bU, 0xc4efc88fU, 0.072, 1, 63},
    {DType::q5_k, 0x2e66, 0x2a3d, 0xe4ee9c51c4c61fc3U, 0x45c7e002U, 0.035, 1, 63},
    {DType::q6_k, 0x2e66, 0, 0xc2107c2fc602aec1U, 0xc72ccf12U, 0.0172, -128, 127},
    {DType::iq4_nl, 0x2e66, 0, 0x7fa2ce1a3c9221caU, 0x44c7bd3cU, 0.0745, 1, 1},
    {DType::mxfp4, 0x2e66, 0, 0x76e7ffe410749beaU, 0x3ce6bbcaU, 0.113, 1, 1},
    {DType::iq4_xs, 0x2e66, 0, 0xaeced0cdc4067eebU, 0xc5a1a2bfU, 0.0755, -32, 31},
};
static_assert(std::size(kGolden) == std::size(kQuantizedTypes), "every format has its row");
inline constexpr int64_t kGoldenLength = 512;

inline std::vector<uint8_t> golden_row(const Golden& golden) {
  const auto seed = static_cast<uint32_t>(1000 + dtype_info(golden.dtype).gguf_id);
  return random_blocks(golden.dtype, seed, kGoldenLength, golden.d, golden.minimum);
}

inline std::vector<float> golden_activations() {
  constexpr float kSpan[4] = {1.0F, 1.25F, 0.5F, 3.0F};
  Bytes bytes(7);
  std::vector<float> row(static_cast<size_t>(kGoldenLength));
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<float>(bytes.next() - 128) / 16.0F * kSpan[i / 32 % 4];
  }
  return row;
}

}  // namespace inferno::test
