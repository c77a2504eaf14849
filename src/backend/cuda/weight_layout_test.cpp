// The device layout on the host: lossless for every format, and its planes hold what the format says.
#include "backend/cuda/weight_layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "quant/quant.h"
#include "tensor/half.h"

namespace inferno::cuda {
namespace {

struct PackedRow {
  std::vector<uint8_t> q, h, s, d;
};

PackedRow pack(DType dtype, const std::vector<uint8_t>& row, int groups) {
  const GroupBytes bytes = group_bytes(dtype);
  const auto count = static_cast<size_t>(groups);
  PackedRow p{std::vector<uint8_t>(count * static_cast<size_t>(bytes.q), 0xff),
              std::vector<uint8_t>(count * static_cast<size_t>(bytes.h), 0xff),
              std::vector<uint8_t>(count * static_cast<size_t>(bytes.s), 0xff),
              std::vector<uint8_t>(count / 8 * static_cast<size_t>(bytes.d), 0xff)};
  device::pack_row<LevelOrder>(dtype, row.data(), {p.q.data(), p.h.data(), p.s.data(), p.d.data(), groups});
  return p;
}

TEST(WeightLayout, PackingAnyBytesAndBackGivesTheSameBytes) {
  std::mt19937 random(1);
  for (const DType dtype : kQuantizedTypes) {
    if (!has_kernels(dtype)) continue;
    constexpr int kGroups = 24;
    std::vector<uint8_t> row(static_cast<size_t>(row_bytes(dtype, kGroups * kGroup)));
    for (uint8_t& byte : row) byte = static_cast<uint8_t>(random());
    const PackedRow p = pack(dtype, row, kGroups);
    std::vector<uint8_t> back(row.size(), 0xff);
    device::unpack_row<LevelOrder>(dtype, {p.q.data(), p.h.data(), p.s.data(), p.d.data(), kGroups}, back.data());
    EXPECT_EQ(back, row) << dtype_name(dtype);
  }
}

// The arithmetic of kernels/formats.cuh, in plain code, from the planes alone.
std::vector<float> values_of(DType dtype, const PackedRow& p, int groups) {
  const GroupBytes bytes = group_bytes(dtype);
  const auto half = [](const uint8_t* at) { return to_float(static_cast<f16>(at[0] | at[1] << 8)); };
  std::vector<float> values;
  for (int g = 0; g < groups; ++g) {
    for (int v = 0; v < kGroup; ++v) {
      int level = 0;
      if (dtype == DType::q8_0) {
        level = static_cast<int8_t>(p.q[static_cast<size_t>((v / 16 * groups + g) * 16 + v % 16)]);
      } else {
        if (bytes.q != 0) level = (p.q[static_cast<size_t>(g * 16 + v % 16)] >> (v / 16 * 4)) & 15;
        const int high = device::get_bits(p.h.data() + g * bytes.h, LevelOrder::high(format_of(dtype).bits, v));
        level += high << (bytes.q != 0 ? 4 : 0);
        level -= level_offset(dtype);
        if (has_codebook(dtype)) level = kCodebooks[static_cast<int>(format_of(dtype).codebook)][level];
      }
      const uint8_t* s = p.s.data() + g * bytes.s;
      const uint8_t* d = p.d.data() + g / 8 * bytes.d;
      float value = 0;
      if (bytes.d == 0) {
        const auto bits = static_cast<uint16_t>(s[0] | s[1] << 8);
        value = (has_byte_scale(dtype) ? to_float(static_cast<bf16>(bits)) : half(s)) * static_cast<float>(level);
        if (bytes.s == 4) value = value + half(s + 2);
      } else {
        float scale = 0;
        float minimum = 0;
        if (dtype == DType::q2_k) {
          scale = static_cast<float>(s[v / 16] & 15);
          minimum = static_cast<float>(s[v / 16] >> 4);
        } else if (bytes.d == 4) {
          scale = s[0];
          minimum = s[1];
        } else {
          scale = static_cast<int8_t>(s[dtype == DType::iq4_xs ? 0 : v / 16]);
        }
        value = half(d) * scale * static_cast<float>(level);
        if (bytes.d == 4) value = value - half(d + 2) * minimum;
      }
      values.push_back(value);
    }
  }
  return values;
}

TEST(WeightLayout, ValuesFromThePlanesAreTheFormatsValues) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (const DType dtype : kQuantizedTypes) {
    if (!has_kernels(dtype)) continue;
    constexpr int kGroups = 16;
    std::vector<float> x(kGroups * kGroup);
    for (float& v : x) v = normal(random);
    std::vector<uint8_t> row(static_cast<size_t>(row_bytes(dtype, kGroups * kGroup)));
    quantize_row(dtype, x.data(), row.data(), kGroups * kGroup);
    std::vector<float> expected(x.size());
    dequantize_row(dtype, row.data(), expected.data(), kGroups * kGroup);
    EXPECT_EQ(values_of(dtype, pack(dtype, row, kGroups), kGroups), expected) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace inferno::cuda
