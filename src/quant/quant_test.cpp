#include "quant/quant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quant/k_scales.h"
#include "quant/test_rows.h"

namespace inferno {
namespace {

// The name of a format's files of reference data: lower case but for the K of the K formats.
std::string file_name(DType dtype) {
  std::string name(dtype_name(dtype));
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name.ends_with("_k")) name.back() = 'K';
  return name;
}
// All but F32 have some.
constexpr std::span<const DType> kReferenceFormats = std::span(kWeightTypes).subspan(1);
constexpr int64_t kRows = 16;
constexpr int64_t kCols = 512;

const std::string kReferences = INFERNO_SOURCE_DIR "/tests/data/quant/";

template <typename T>
std::vector<T> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

std::vector<uint8_t> quantized(DType dtype, const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<uint8_t> bytes(static_cast<size_t>(row_bytes(dtype, n)));
  quantize_row(dtype, values.data(), bytes.data(), n);
  return bytes;
}

std::vector<float> dequantized(DType dtype, const std::vector<uint8_t>& bytes, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  dequantize_row(dtype, bytes.data(), values.data(), n);
  return values;
}

std::vector<float> through(DType dtype, const std::vector<float>& values) {
  return dequantized(dtype, quantized(dtype, values), static_cast<int64_t>(values.size()));
}

double rms_distance(const float* a, const float* b, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(n));
}

TEST(Dequantize, MatchesReferenceBytesBitForBit) {
  for (const DType dtype : kReferenceFormats) {
    const std::string name = file_name(dtype);
    SCOPED_TRACE(name);
    const auto bytes = read_file<uint8_t>(kReferences + name + ".q.bin");
    const auto expected = read_file<float>(kReferences + name + ".f32.bin");
    ASSERT_EQ(bytes.size(), static_cast<size_t>(kRows * row_bytes(dtype, kCols)));
    ASSERT_EQ(expected.size(), static_cast<size_t>(kRows * kCols));
    const std::vector<float> values = dequantized(dtype, bytes, kRows * kCols);
    EXPECT_EQ(std::memcmp(values.data(), expected.data(), values.size() * 4), 0);
  }
}

TEST(Dequantize, MatchesIndependentImplementationOnRandomBlocks) {
  for (const test::Golden& golden : test::kGolden) {
    SCOPED_TRACE(dtype_name(golden.dtype));
    const std::vector<float> values = dequantized(golden.dtype, test::golden_row(golden), test::kGoldenLength);
    uint64_t hash = 0xcbf29ce484222325U;
    for (const float value : values) {
      uint8_t bytes[4];
      std::memcpy(bytes, &value, 4);
      for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3U;
    }
    EXPECT_EQ(hash, golden.dequantized_hash);
  }
}

TEST(Dequantize, ReadsAndWritesRowsAtOddAddresses) {
  const std::vector<float> values = test::normal_row(3, 256);
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype == DType::i32) continue;
    SCOPED_TRACE(info.name);
    const std::vector<uint8_t> aligned = quantized(info.dtype, values);
    std::vector<uint8_t> shifted(aligned.size() + 1);
    quantize_row(info.dtype, values.data(), shifted.data() + 1, 256);
    EXPECT_EQ(std::memcmp(shifted.data() + 1, aligned.data(), aligned.size()), 0);
    std::vector<float> back(256);
    dequantize_row(info.dtype, shifted.data() + 1, back.data(), 256);
    EXPECT_EQ(back, dequantized(info.dtype, aligned, 256));
  }
}

TEST(Quantize, ErrorPerRowIsNoWorseThanReference) {
  const auto input = read_file<float>(kReferences + "input_f32.bin");
  ASSERT_EQ(input.size(), static_cast<size_t>(kRows * kCols));
  for (const DType dtype : kReferenceFormats) {
    const std::string name = file_name(dtype);
    const auto reference = read_file<float>(kReferences + name + ".f32.bin");
    ASSERT_EQ(reference.size(), input.size());
    for (int64_t row = 0; row < kRows; ++row) {
      SCOPED_TRACE(name + " row " + std::to_string(row));
      const std::vector<float> x(input.begin() + row * kCols, input.begin() + (row + 1) * kCols);
      float largest = 0.0F;
      for (const float value : x) largest = std::max(largest, std::fabs(value));
      const double error = rms_distance(through(dtype, x).data(), x.data(), kCols);
      const double reference_error = rms_distance(reference.data() + row * kCols, x.data(), kCols);
      EXPECT_LE(error, 1.02 * reference_error + 1e-6 * largest);
    }
  }
}

TEST(Quantize, ErrorOnNormalValuesStaysWithinItsBudget) {
  constexpr int64_t kLength = 16384;
  const std::vector<float> x = test::normal_row(11, kLength);
  const std::vector<float> zero(x.size());
  for (const test::Golden& golden : test::kGolden) {
    SCOPED_TRACE(dtype_name(golden.dtype));
    const double error = rms_distance(through(golden.dtype, x).data(), x.data(), kLength);
    EXPECT_LE(error / rms_distance(zero.data(), x.data(), kLength), golden.relative_rms);
  }
}

// What a level may be, ascending.
std::vector<int> levels_of(const WeightFormat& format) {
  std::vector<int> levels;
  if (format.codebook != Codebook::none) {
    const auto& values = kCodebooks[static_cast<size_t>(format.codebook)];
    levels.assign(std::begin(values), std::end(values));
    std::ranges::sort(levels);
    return levels;
  }
  const int highest = (1 << (format.is_signed ? format.bits - 1 : format.bits)) - 1;
  const int lowest = !format.is_signed ? 0 : format.bits == 8 ? -highest : -highest - 1;
  for (int level = lowest; level <= highest; ++level) levels.push_back(level);
  return levels;
}

// Values that a block can hold exactly come back exactly when the block uses its whole range: every sub-block reaches
// the ends of its levels and one sub-block has the largest scale and minimum.
TEST(Quantize, RepresentableValuesComeBackExactly) {
  for (const test::Golden& golden : test::kGolden) {
    const DType dtype = golden.dtype;
    SCOPED_TRACE(dtype_name(dtype));
    const WeightFormat& format = weight_format(dtype);
    const bool signed_levels = format.m < 0;
    const std::vector<int> levels = levels_of(format);
    const int sub = format.sub == 0 ? format.block : format.sub;
    const auto [lowest_scale, highest_scale] = std::pair(golden.lowest_scale, golden.highest_scale);
    const bool k_format = is_k_format(dtype);
    test::Bytes bytes(5);
    std::vector<float> x(256);
    size_t at = 0;
    for (int j = 0; j < 256 / sub; ++j) {
      const int spread = highest_scale - lowest_scale + 1;
      int scale = lowest_scale + bytes.next() % spread;
      if (j == 0) scale = signed_levels ? lowest_scale : highest_scale;
      if (scale == 0) scale = 1;
      const int minimum = j == 0 ? highest_scale : 1 + bytes.next() % highest_scale;
      const float d = 0.0625F * static_cast<float>(scale);
      const float offset = signed_levels ? 0.0F : (k_format ? -0.125F * static_cast<float>(minimum) : -0.375F);
      for (int i = 0; i < sub; ++i) {
        int level = levels[bytes.next() % levels.size()];
        if (i == 0) level = levels.front();
        if (i == 1) level = levels.back();
        x[at++] = d * static_cast<float>(level) + offset;
      }
    }
    EXPECT_EQ(through(dtype, x), x);
  }
}

TEST(Quantize, ZeroRowsStayZeroAndTinyRowsStayTiny) {
  for (const DType dtype : kQuantizedTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    EXPECT_EQ(through(dtype, std::vector<float>(256, 0.0F)), std::vector<float>(256, 0.0F));
    for (const float size : {1e-45F, 1e-40F, 1e-30F, 1e-9F, 1e-7F, 1e-6F}) {
      std::vector<float> x = test::normal_row(13, 256);
      for (float& value : x) value *= size;
      const std::vector<float> back = through(dtype, x);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_LE(std::fabs(back[i] - x[i]), 4.0F * size + 1e-7F) << "size " << size << " value " << i;
      }
    }
  }
}

TEST(Quantize, NanCountsAsZero) {
  std::vector<float> clean = test::normal_row(17, 512);
  std::vector<float> dirty = clean;
  for (const size_t i : {size_t{0}, size_t{31}, size_t{100}, size_t{300}, size_t{511}}) {
    clean[i] = 0.0F;
    dirty[i] = i % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::quiet_NaN();
  }
  for (const DType dtype : kQuantizedTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    EXPECT_EQ(quantized(dtype, dirty), quantized(dtype, clean));
  }
  const std::vector<float> all(256, std::numeric_limits<float>::quiet_NaN());
  for (const DType dtype : kQuantizedTypes) EXPECT_EQ(through(dtype, all), std::vector<float>(256, 0.0F));
}

TEST(Quantize, HugeAndInfiniteValuesGiveFiniteBlocks) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kMax = std::numeric_limits<float>::max();
  const std::vector<float> shape = test::normal_row(19, 256);
  for (const DType dtype : kQuantizedTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    for (const float size : {1e4F, 1e6F, 1e9F, 1e15F, 1e30F, kMax, kInf}) {
      for (const size_t stride : {size_t{1}, size_t{7}, size_t{256}}) {
        std::vector<float> x = shape;
        for (size_t i = 0; i < x.size(); i += stride) x[i] *= size;
        for (const float value : through(dtype, x)) ASSERT_TRUE(std::isfinite(value)) << size << " " << stride;
        std::vector<float> one_sided = x;
        for (float& value : one_sided) value = -std::fabs(value);
        for (const float value : through(dtype, one_sided)) ASSERT_TRUE(std::isfinite(value)) << size;
      }
    }
  }
}

TEST(Quantize, ErrorIsRelativeOverTheWholeRangeOfScales) {
  const std::vector<float> shape = test::normal_row(23, 512);
  for (const DType dtype : kQuantizedTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    const double relative = rms_distance(through(dtype, shape).data(), shape.data(), 512);
    for (const float size : {0x1p-6F, 0x1p6F, 0x1p12F}) {
      std::vector<float> x = shape;
      for (float& value : x) value *= size;
      const double error = rms_distance(through(dtype, x).data(), x.data(), 512) / size;
      EXPECT_LE(error, relative * 1.05) << size;
    }
  }
}

TEST(KScales, PackingLosesNothing) {
  test::Bytes bytes(29);
  for (int trial = 0; trial < 100; ++trial) {
    uint8_t scales[8];
    uint8_t minimums[8];
    for (int j = 0; j < 8; ++j) {
      scales[j] = bytes.next() & 63;
      minimums[j] = bytes.next() & 63;
    }
    uint8_t packed[12];
    uint8_t scales_back[8];
    uint8_t minimums_back[8];
    pack_k_scales(scales, minimums, packed);
    unpack_k_scales(packed, scales_back, minimums_back);
    EXPECT_EQ(std::memcmp(scales, scales_back, 8), 0);
    EXPECT_EQ(std::memcmp(minimums, minimums_back, 8), 0);
  }
}

}  // namespace
}  // namespace inferno
