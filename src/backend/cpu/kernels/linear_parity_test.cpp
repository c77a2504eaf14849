// Every linear kernel of every table this CPU can run, against the scalar table.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "backend/cpu/aligned_memory.h"
#include "backend/cpu/kernels/select.h"
#include "base/checked.h"
#include "quant/quant.h"
#include "quant/test_rows.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

namespace inferno {
namespace {

constexpr DType kPlain[] = {DType::f32, DType::f16, DType::bf16};

struct Shape2 {
  int64_t rows;
  int64_t k;
};

std::vector<uint8_t> random_weight(DType dtype, const Shape2& shape, uint32_t seed) {
  std::vector<uint8_t> bytes;
  for (int64_t r = 0; r < shape.rows; ++r) {
    std::vector<uint8_t> row;
    if (is_quantized(dtype)) {
      // Scales of both signs and many sizes, zero and subnormal among them.
      constexpr uint16_t kScales[] = {0x2e66, 0xae66, 0x0000, 0x0003, 0x8001, 0x3c00, 0x7bff, 0x1000};
      const uint16_t d = kScales[static_cast<size_t>(r) % std::size(kScales)];
      row = test::random_blocks(dtype, seed + static_cast<uint32_t>(r), shape.k, d, static_cast<uint16_t>(d ^ 0x8011));
      if (d == 0x7bff) row = test::random_blocks(dtype, seed, shape.k, 0x2a00, 0x2b00);
    } else {
      const std::vector<float> x = test::normal_row(seed + static_cast<uint32_t>(r), shape.k);
      row.resize(static_cast<size_t>(row_bytes(dtype, shape.k)));
      quantize_row(dtype, x.data(), row.data(), shape.k);
    }
    bytes.insert(bytes.end(), row.begin(), row.end());
  }
  return bytes;
}

struct Packed {
  AlignedMemory memory;
  int64_t bytes;
};
Packed pack(const LinearKernel& kernel, DType dtype, const Shape2& shape, const std::vector<uint8_t>& canonical) {
  const WeightLayout& layout = *kernel.weight;
  const int64_t group = layout.group_bytes(shape.k);
  const int64_t bytes = ceil_div(shape.rows, layout.row_group) * group;
  Packed packed{aligned_memory(static_cast<size_t>(bytes)), bytes};
  for (int64_t r = 0; r < shape.rows; r += layout.row_group) {
    layout.pack(canonical.data() + r * row_bytes(dtype, shape.k), std::min(layout.row_group, shape.rows - r), shape.k,
                packed.memory.get() + r / layout.row_group * group);
  }
  return packed;
}

// out[tokens, rows] of a weight; the activations at an address that is a multiple of four only.
std::vector<float> multiply(const LinearKernel& kernel, const Packed& weight, const Shape2& shape,
                            const std::vector<float>& x, int64_t tokens, const std::vector<float>* add = nullptr,
                            int64_t parts = 1) {
  const int64_t stride = shape.k + 3;
  std::vector<float> shifted(static_cast<size_t>(tokens * stride + 1));
  for (int64_t t = 0; t < tokens; ++t) std::copy_n(x.data() + t * shape.k, shape.k, shifted.data() + 1 + t * stride);
  const ActivationLayout& layout = *kernel.activation;
  AlignedMemory activations = aligned_memory(static_cast<size_t>(layout.bytes(tokens, shape.k)));
  std::memset(activations.get(), 0x55, static_cast<size_t>(layout.bytes(tokens, shape.k)));
  // As two threads would: the rows in two parts, split at a multiple of the step.
  const int64_t half = std::min(tokens, round_up(tokens / 2, layout.row_step));
  if (half > 0) layout.prepare(shifted.data() + 1, stride, tokens, shape.k, 0, half, activations.get());
  if (half < tokens) layout.prepare(shifted.data() + 1, stride, tokens, shape.k, half, tokens, activations.get());
  std::vector<float> out = add != nullptr ? *add : std::vector<float>(static_cast<size_t>(tokens * shape.rows), -7.0F);
  AlignedMemory scratch = aligned_memory(static_cast<size_t>(kernel.scratch_bytes(shape.k, tokens)));
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t steps = ceil_div(shape.rows, kernel.row_step);
    const int64_t begin = std::min(shape.rows, steps * p / parts * kernel.row_step);
    const int64_t end = std::min(shape.rows, steps * (p + 1) / parts * kernel.row_step);
    if (begin == end) continue;
    kernel.run({weight.memory.get(), activations.get(), shape.k, tokens, begin, end, out.data(), shape.rows,
                add != nullptr, scratch.get()});
  }
  return out;
}

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want, int64_t rows,
                      const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(same_bits(got[i], want[i])) << what << " token " << static_cast<int64_t>(i) / rows << " row "
                                            << static_cast<int64_t>(i) % rows << ": " << got[i] << " not " << want[i];
  }
}

std::vector<float> activations(int64_t tokens, int64_t k, uint32_t seed) {
  std::vector<float> x = test::normal_row(seed, tokens * k);
  // Tokens of very different size, with outliers inside.
  for (int64_t t = 0; t < tokens; ++t) {
    const float size = std::ldexp(1.0F, static_cast<int>(t * 7 % 23) - 11);
    for (int64_t i = 0; i < k; ++i) x[static_cast<size_t>(t * k + i)] *= i % 97 == 5 ? 30.0F * size : size;
  }
  return x;
}

class LinearParity : public testing::TestWithParam<const KernelTable*> {};

TEST_P(LinearParity, QuantizedProductsAreBitEqualToScalar) {
  for (const DType dtype : kQuantizedTypes) {
    const auto type = static_cast<size_t>(dtype);
    const LinearKernel& kernel = GetParam()->linear[type];
    const LinearKernel& reference = scalar_kernels().linear[type];
    for (const Shape2 shape : {Shape2{1, 256}, Shape2{37, 512}, Shape2{64, 1024}, Shape2{11, 2816}, Shape2{5, 96},
                               Shape2{83, 1184}, Shape2{150, 512}}) {
      if (shape.k % dtype_info(dtype).block_size != 0) continue;
      const std::vector<uint8_t> canonical = random_weight(dtype, shape, 3);
      const Packed packed = pack(kernel, dtype, shape, canonical);
      const Packed plain = pack(reference, dtype, shape, canonical);
      for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 17, 22, 31, 33, 51, 83, 97}) {
        const std::vector<float> x = activations(tokens, shape.k, static_cast<uint32_t>(tokens));
        const std::vector<float> want = multiply(reference, plain, shape, x, tokens);
        const std::string what = std::string(dtype_name(dtype)) + " k " + std::to_string(shape.k) + " tokens " +
                                 std::to_string(tokens) + " " + kernel.name;
        expect_same_bits(multiply(kernel, packed, shape, x, tokens), want, shape.rows, what);
        expect_same_bits(multiply(kernel, packed, shape, x, tokens, nullptr, 3), want, shape.rows, what + " in parts");
      }
    }
  }
}

TEST_P(LinearParity, ConvertingARowInPartsAndPrefetchingMeanwhileGiveTheSameBits) {
  constexpr Shape2 kShape = {43, 1024};
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const LinearKernel& kernel = GetParam()->linear[d];
    if (kernel.name == nullptr || kernel.activation->prepare_columns == nullptr) continue;
    const ActivationLayout& layout = *kernel.activation;
    const Packed packed = pack(kernel, dtype, kShape, random_weight(dtype, kShape, 3));
    const std::vector<float> x = activations(1, kShape.k, 5);
    AlignedMemory row = aligned_memory(static_cast<size_t>(layout.bytes(1, kShape.k)));
    for (int64_t begin = kShape.k - 256; begin >= 0; begin -= 256) {
      layout.prepare_columns(x.data(), kShape.k, begin, begin + 256, row.get());
    }
    AlignedMemory scratch = aligned_memory(static_cast<size_t>(kernel.scratch_bytes(kShape.k, 1)));
    std::vector<float> out(static_cast<size_t>(kShape.rows));
    const MemoryRange prefetch[] = {{packed.memory.get(), 1000}, {packed.memory.get() + 2000, 64}};
    kernel.run({packed.memory.get(), row.get(), kShape.k, 1, 0, kShape.rows, out.data(), kShape.rows, false,
                scratch.get(), prefetch, 2});
    expect_same_bits(out, multiply(kernel, packed, kShape, x, 1), kShape.rows, std::string(dtype_name(dtype)));
  }
}

TEST_P(LinearParity, ExtremeActivationsGiveTheSameBits) {
  constexpr Shape2 kShape = {16, 512};
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kSpecial[] = {0.0F, 1e-45F, 1e-38F, 3e-37F, 3e38F, kInf, -kInf, kNan};
  for (const DType dtype : kQuantizedTypes) {
    const auto type = static_cast<size_t>(dtype);
    const LinearKernel& kernel = GetParam()->linear[type];
    const LinearKernel& reference = scalar_kernels().linear[type];
    const std::vector<uint8_t> canonical = random_weight(dtype, kShape, 5);
    const Packed packed = pack(kernel, dtype, kShape, canonical);
    const Packed plain = pack(reference, dtype, kShape, canonical);
    for (const int64_t tokens : {int64_t{1}, int64_t{3}, static_cast<int64_t>(std::size(kSpecial))}) {
      for (const int64_t rotation : {0, 5, 6, 7}) {
        std::vector<float> x = test::normal_row(11, tokens * kShape.k);
        for (int64_t t = 0; t < tokens; ++t) {
          const float special = kSpecial[static_cast<size_t>(t + rotation) % std::size(kSpecial)];
          // A whole first block and one value of the second half.
          for (int64_t i = 0; i < 256; ++i) x[static_cast<size_t>(t * kShape.k + i)] = i % 3 == 0 ? special : 0.0F;
          x[static_cast<size_t>(t * kShape.k + 300)] = special;
        }
        expect_same_bits(multiply(kernel, packed, kShape, x, tokens), multiply(reference, plain, kShape, x, tokens),
                         kShape.rows, std::string(dtype_name(dtype)) + " " + kernel.name);
      }
    }
  }
}

// All levels, or all of their bits but one, at an end of their range, times the largest activations: partial sums that
// are kept in few bits must hold them.
TEST_P(LinearParity, TheLargestSumsGiveTheSameBits) {
  constexpr Shape2 kShape = {24, 512};
  for (const DType dtype : kQuantizedTypes) {
    const auto type = static_cast<size_t>(dtype);
    const WeightFormat& format = kWeightFormats[type];
    const LinearKernel& kernel = GetParam()->linear[type];
    const LinearKernel& reference = scalar_kernels().linear[type];
    for (const uint8_t pattern : std::initializer_list<uint8_t>{0xff, 0x80, 0x7f, 0x00}) {
      std::vector<uint8_t> canonical(static_cast<size_t>(kShape.rows * row_bytes(dtype, kShape.k)), pattern);
      for (size_t block = 0; block < canonical.size(); block += static_cast<size_t>(format.bytes)) {
        for (const int at : {static_cast<int>(format.d), static_cast<int>(format.m)}) {
          if (at < 0) continue;
          canonical[block + static_cast<size_t>(at)] = format.d_type == ScaleType::e8m0 ? 127 : 0;
          if (format.d_type != ScaleType::e8m0) canonical[block + static_cast<size_t>(at) + 1] = 0x3c;
        }
      }
      const Packed packed = pack(kernel, dtype, kShape, canonical);
      const Packed plain = pack(reference, dtype, kShape, canonical);
      for (const int64_t tokens : {1, 3, 6, 16, 33}) {
        std::vector<float> x(static_cast<size_t>(tokens * kShape.k));
        for (size_t i = 0; i < x.size(); ++i) x[i] = (i / static_cast<size_t>(kShape.k)) % 2 == 0 ? 1.0F : -1.0F;
        expect_same_bits(multiply(kernel, packed, kShape, x, tokens), multiply(reference, plain, kShape, x, tokens),
                         kShape.rows, std::string(dtype_name(dtype)) + " " + kernel.name);
      }
    }
  }
}

TEST_P(LinearParity, ProductsAreAddedToTheResidual) {
  for (const DType dtype : {DType::q8_0, DType::q4_k, DType::f32, DType::f16, DType::bf16}) {
    const auto type = static_cast<size_t>(dtype);
    const LinearKernel& kernel = GetParam()->linear[type];
    constexpr Shape2 kShape = {21, 256};
    const Packed packed = pack(kernel, dtype, kShape, random_weight(dtype, kShape, 5));
    for (const int64_t tokens : {1, 3, 6, 17}) {
      const std::vector<float> x = activations(tokens, kShape.k, 9);
      const std::vector<float> product = multiply(kernel, packed, kShape, x, tokens);
      const std::vector<float> residual = test::normal_row(10, tokens * kShape.rows);
      std::vector<float> want(residual);
      for (size_t i = 0; i < want.size(); ++i) want[i] += product[i];
      expect_same_bits(multiply(kernel, packed, kShape, x, tokens, &residual), want, kShape.rows, kernel.name);
    }
  }
}

// Order of the sums is the table's own; the bound is that of any order: k roundings of the sum of magnitudes.
TEST_P(LinearParity, PlainProductsAreWithinTheirRounding) {
  for (const DType dtype : kPlain) {
    const auto type = static_cast<size_t>(dtype);
    const LinearKernel& kernel = GetParam()->linear[type];
    const LinearKernel& reference = scalar_kernels().linear[type];
    for (const Shape2 shape :
         {Shape2{1, 1}, Shape2{9, 3}, Shape2{37, 31}, Shape2{8, 33}, Shape2{17, 1024}, Shape2{5, 4095}}) {
      const std::vector<uint8_t> canonical = random_weight(dtype, shape, 3);
      const Packed packed = pack(kernel, dtype, shape, canonical);
      const Packed plain = pack(reference, dtype, shape, canonical);
      std::vector<float> row(static_cast<size_t>(shape.k));
      for (const int64_t tokens : {1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 22, 31, 33, 51}) {
        const std::vector<float> x = activations(tokens, shape.k, static_cast<uint32_t>(tokens));
        const std::vector<float> want = multiply(reference, plain, shape, x, tokens);
        const std::vector<float> got = multiply(kernel, packed, shape, x, tokens, nullptr, 2);
        for (int64_t n = 0; n < shape.rows; ++n) {
          dequantize_row(dtype, canonical.data() + n * row_bytes(dtype, shape.k), row.data(), shape.k);
          for (int64_t t = 0; t < tokens; ++t) {
            double magnitude = 0;
            for (int64_t i = 0; i < shape.k; ++i) {
              magnitude += std::fabs(double{row[static_cast<size_t>(i)]} * x[static_cast<size_t>(t * shape.k + i)]);
            }
            const auto at = static_cast<size_t>(t * shape.rows + n);
            ASSERT_NEAR(got[at], want[at], magnitude * 0x1p-22 * std::sqrt(static_cast<double>(shape.k)) + 1e-30)
                << dtype_name(dtype) << " k " << shape.k << " tokens " << tokens << " token " << t << " row " << n;
          }
        }
      }
    }
  }
}

// What makes results independent of how a prompt is chunked: a token's product does not depend on its neighbours.
TEST_P(LinearParity, ATokensProductDoesNotDependOnTheOtherTokens) {
  constexpr Shape2 kShape = {43, 512};
  constexpr int64_t kTokens = 19;
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const LinearKernel& kernel = GetParam()->linear[d];
    if (kernel.name == nullptr) continue;
    const Packed packed = pack(kernel, dtype, kShape, random_weight(dtype, kShape, 7));
    std::vector<float> x = activations(kTokens, kShape.k, 8);
    // One token that F16 cannot hold.
    x[static_cast<size_t>(4 * kShape.k + 77)] = 1e6F;
    const std::vector<float> all = multiply(kernel, packed, kShape, x, kTokens);
    for (const int64_t chunk : {1, 2, 3, 4, 6, 7, 9, 16}) {
      for (int64_t first = 0; first < kTokens; first += chunk) {
        const int64_t count = std::min(chunk, kTokens - first);
        const std::vector<float> some(x.begin() + first * kShape.k, x.begin() + (first + count) * kShape.k);
        const std::vector<float> want(all.begin() + first * kShape.rows, all.begin() + (first + count) * kShape.rows);
        expect_same_bits(multiply(kernel, packed, kShape, some, count), want, kShape.rows,
                         std::string(dtype_name(dtype)) + " chunk " + std::to_string(chunk));
      }
    }
  }
}

// Large enough that a kernel's blocks of tokens, rows and columns all end inside: one token at a time has none of them.
TEST_P(LinearParity, ATokensPlainProductDoesNotDependOnTheBlocking) {
  constexpr Shape2 kShape = {293, 299};
  constexpr int64_t kTokens = 99;
  for (const DType dtype : kPlain) {
    const LinearKernel& kernel = GetParam()->linear[static_cast<size_t>(dtype)];
    const Packed packed = pack(kernel, dtype, kShape, random_weight(dtype, kShape, 7));
    const std::vector<float> x = activations(kTokens, kShape.k, 8);
    std::vector<float> want;
    for (int64_t t = 0; t < kTokens; ++t) {
      const std::vector<float> token(x.begin() + t * kShape.k, x.begin() + (t + 1) * kShape.k);
      const std::vector<float> product = multiply(kernel, packed, kShape, token, 1);
      want.insert(want.end(), product.begin(), product.end());
    }
    const std::string what(dtype_name(dtype));
    expect_same_bits(multiply(kernel, packed, kShape, x, kTokens), want, kShape.rows, what);
    const std::vector<float> residual = test::normal_row(10, kTokens * kShape.rows);
    for (size_t i = 0; i < want.size(); ++i) want[i] += residual[i];
    expect_same_bits(multiply(kernel, packed, kShape, x, kTokens, &residual, 2), want, kShape.rows, what + " added");
  }
}

// The order that the kernel's header states: in steps of 32 columns the even and the odd ones, then both.
TEST(MatrixTiles, Bf16ProductsAddInTheDocumentedOrder) {
  const KernelTable* table = find_kernels("amx");
  if (table == nullptr) GTEST_SKIP() << "this CPU has no matrix tiles";
  const LinearKernel& kernel = table->linear[static_cast<size_t>(DType::bf16)];
  constexpr Shape2 kShape = {33, 333};
  const std::vector<uint8_t> canonical = random_weight(DType::bf16, kShape, 3);
  const Packed packed = pack(kernel, DType::bf16, kShape, canonical);
  for (const int64_t tokens : {1, 5, 16, 17, 40}) {
    const std::vector<float> x = activations(tokens, kShape.k, 4);
    std::vector<float> want;
    std::vector<float> row(static_cast<size_t>(kShape.k));
    for (int64_t out = 0; out < tokens * kShape.rows; ++out) {
      const float* token = x.data() + out / kShape.rows * kShape.k;
      dequantize_row(DType::bf16, canonical.data() + out % kShape.rows * 2 * kShape.k, row.data(), kShape.k);
      float total = 0;
      for (int64_t first = 0; first < kShape.k; first += 32) {
        float sums[2] = {};
        for (int64_t i = first; i < std::min(first + 32, kShape.k); ++i) {
          sums[i % 2] = std::fma(to_float(to_bf16(token[i])), row[static_cast<size_t>(i)], sums[i % 2]);
        }
        total += sums[0] + sums[1];
      }
      want.push_back(total);
    }
    expect_same_bits(multiply(kernel, packed, kShape, x, tokens), want, kShape.rows, std::to_string(tokens));
  }
}

TEST_P(LinearParity, HalfFloatWeightsMeetActivationsThatHalfFloatsCannotHold) {
  const auto type = static_cast<size_t>(DType::f16);
  const LinearKernel& kernel = GetParam()->linear[type];
  const LinearKernel& reference = scalar_kernels().linear[type];
  constexpr Shape2 kShape = {9, 64};
  const std::vector<uint8_t> canonical = random_weight(DType::f16, kShape, 3);
  for (const int64_t tokens : {1, 2, 5}) {
    std::vector<float> x = test::normal_row(4, tokens * kShape.k);
    x[static_cast<size_t>((tokens - 1) * kShape.k + 7)] = 1e6F;
    const std::vector<float> want =
        multiply(reference, pack(reference, DType::f16, kShape, canonical), kShape, x, tokens);
    const std::vector<float> got = multiply(kernel, pack(kernel, DType::f16, kShape, canonical), kShape, x, tokens);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 4e-7 * 1e6 * 3) << i;
  }
}

TEST_P(LinearParity, EveryRowComesBackFromItsGroup) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const LinearKernel& kernel = GetParam()->linear[d];
    if (kernel.name == nullptr) continue;
    const Shape2 shape = {21, is_quantized(dtype) ? 512 : 77};
    std::vector<uint8_t> canonical = random_weight(dtype, shape, 13);
    const Packed packed = pack(kernel, dtype, shape, canonical);
    const int64_t row = row_bytes(dtype, shape.k);
    std::vector<uint8_t> back(static_cast<size_t>(row));
    for (int64_t r = 0; r < shape.rows; ++r) {
      const WeightLayout& layout = *kernel.weight;
      layout.unpack_row(packed.memory.get() + r / layout.row_group * layout.group_bytes(shape.k), r % layout.row_group,
                        shape.k, back.data());
      ASSERT_EQ(std::memcmp(back.data(), canonical.data() + r * row, static_cast<size_t>(row)), 0)
          << dtype_name(dtype) << " row " << r << " " << kernel.name;
    }
    // Memory: the weights once, scales of 6 bits in 8 at most.
    if (is_quantized(dtype)) {
      EXPECT_LE(kernel.weight->group_bytes(1024), kernel.weight->row_group * row_bytes(dtype, 1024) * 104 / 100)
          << dtype_name(dtype);
    }
  }
}

// The searched and hand-made instruction orders against the compiler's.
TEST(Assembly, LinearGivesTheBitsOfIntrinsics) {
  const KernelTable* assembly = find_kernels("neon_i8mm");
  const KernelTable* intrinsics = find_kernels("neon_i8mm_intrinsics");
  if (assembly == nullptr || intrinsics == nullptr) GTEST_SKIP() << "this CPU has no kernels in assembly";
  constexpr Shape2 kShape = {43, 1536};
  for (const DType dtype : kQuantizedTypes) {
    const auto type = static_cast<size_t>(dtype);
    ASSERT_NE(assembly->linear[type].run, intrinsics->linear[type].run);
    const std::vector<uint8_t> canonical = random_weight(dtype, kShape, 17);
    const Packed packed = pack(assembly->linear[type], dtype, kShape, canonical);
    for (const int64_t tokens : {4, 6, 7, 8, 9, 12, 37}) {
      const std::vector<float> x = activations(tokens, kShape.k, static_cast<uint32_t>(tokens));
      const std::vector<float> residual = test::normal_row(10, tokens * kShape.rows);
      for (const std::vector<float>* add : {static_cast<const std::vector<float>*>(nullptr), &residual}) {
        expect_same_bits(multiply(assembly->linear[type], packed, kShape, x, tokens, add),
                         multiply(intrinsics->linear[type], packed, kShape, x, tokens, add), kShape.rows,
                         std::string(dtype_name(dtype)) + " tokens " + std::to_string(tokens));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, LinearParity, testing::ValuesIn(available_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace inferno
