// The vector ops of every table this CPU can run, against the scalar table.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "backend/cpu/kernels/select.h"
#include "quant/test_rows.h"
#include "tensor/dtype.h"

namespace inferno {
namespace {

constexpr int64_t kLengths[] = {1, 2, 3, 4, 5, 7, 8, 15, 31, 33, 128, 1024, 4095};

// The distance of two floats in units in the last place.
int64_t ulps(float a, float b) {
  const auto order = [](float x) {
    const auto bits = std::bit_cast<int32_t>(x);
    return int64_t{bits < 0 ? std::numeric_limits<int32_t>::min() - bits : bits};
  };
  return std::abs(order(a) - order(b));
}

class VectorParity : public testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& table_ = *GetParam();
  const KernelTable& scalar_ = scalar_kernels();
};

void expect_same(const std::vector<float>& got, const std::vector<float>& want, const char* op) {
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << op << " at " << i << " of " << want.size();
  }
}

TEST_P(VectorParity, ElementwiseOpsAreBitEqual) {
  for (const int64_t n : kLengths) {
    const std::vector<float> a = test::normal_row(1, n + 1);
    const std::vector<float> b = test::normal_row(2, n + 1);
    const auto size = static_cast<size_t>(n);
    // From an address that is a multiple of four only.
    for (const auto op : {&KernelTable::add, &KernelTable::hadamard}) {
      std::vector<float> got(size);
      std::vector<float> want(size);
      (table_.*op)(a.data() + 1, b.data() + 1, got.data(), n);
      (scalar_.*op)(a.data() + 1, b.data() + 1, want.data(), n);
      expect_same(got, want, "add or hadamard");
    }
    std::vector<float> got(size);
    std::vector<float> want(size);
    table_.scale(a.data(), 0.37F, got.data(), n);
    scalar_.scale(a.data(), 0.37F, want.data(), n);
    expect_same(got, want, "scale");
    got.assign(b.begin(), b.begin() + n);
    want = got;
    table_.saxpy(-1.7F, a.data(), got.data(), n);
    scalar_.saxpy(-1.7F, a.data(), want.data(), n);
    expect_same(got, want, "saxpy");
  }
}

TEST_P(VectorParity, RotationsAreBitEqual) {
  for (const int64_t pairs : {1, 3, 4, 32, 33, 64}) {
    const std::vector<float> head = test::normal_row(3, 2 * pairs);
    const std::vector<float> cos_sin = test::normal_row(4, 2 * pairs);
    for (const auto op : {&KernelTable::rope_half_split, &KernelTable::rope_interleaved}) {
      std::vector<float> got = head;
      std::vector<float> want = head;
      (table_.*op)(got.data(), cos_sin.data(), pairs);
      (scalar_.*op)(want.data(), cos_sin.data(), pairs);
      expect_same(got, want, "rope");
    }
  }
}

TEST_P(VectorParity, MatmulIsBitEqual) {
  for (const int64_t m : {1, 4, 7}) {
    for (const int64_t n : {1, 3, 33, 128}) {
      for (const int64_t p : {1, 5, 16, 31, 64}) {
        const std::vector<float> a = test::normal_row(5, m * n);
        const std::vector<float> b = test::normal_row(6, n * p);
        std::vector<float> got(static_cast<size_t>(m * p));
        std::vector<float> want(static_cast<size_t>(m * p));
        table_.matmul(a.data(), b.data(), got.data(), n, p, 0, m / 2);
        table_.matmul(a.data(), b.data(), got.data(), n, p, m / 2, m);
        scalar_.matmul(a.data(), b.data(), want.data(), n, p, 0, m);
        expect_same(got, want, "matmul");
      }
    }
  }
}

// exp is seen through softmax of (x, 0) with x <= 0, whose parts are e^x / (1 + e^x) and 1 / (1 + e^x), and through
// silu.
TEST_P(VectorParity, SiluIsWithinAFewRoundings) {
  std::vector<float> x;
  for (int i = -4000; i <= 4000; ++i) x.push_back(static_cast<float>(i) * 0.03F);
  x.insert(x.end(), {1e-30F, -1e-30F, 88.7F, -88.7F, -200.0F, 200.0F, -104.0F, -87.4F});
  const auto n = static_cast<int64_t>(x.size());
  std::vector<float> got(x.size());
  table_.silu(x.data(), got.data(), n);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = double{x[i]} / (1.0 + std::exp(-double{x[i]}));
    // exp within 2 ulp, one addition and one division; where e^-x overflows the result is zero.
    if (x[i] < -88.0F) {
      EXPECT_NEAR(got[i], exact, 1e-36) << x[i];
    } else {
      EXPECT_LE(ulps(got[i], static_cast<float>(exact)), 4) << x[i];
    }
  }
  const std::vector<float> up = test::normal_row(7, n);
  std::vector<float> gated(x.size());
  table_.swiglu(x.data(), up.data(), gated.data(), n);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(gated[i], got[i] * up[i]) << x[i];
}

TEST_P(VectorParity, SoftmaxIsCloseAndSumsToOne) {
  for (const int64_t n : kLengths) {
    std::vector<float> x = test::normal_row(8, n);
    for (float& v : x) v *= 5;
    if (n > 4) x[3] = -INFINITY;
    std::vector<float> got(x.size());
    table_.softmax(x.data(), got.data(), n);
    double largest = -INFINITY;
    for (const float v : x) largest = std::max(largest, double{v});
    double total = 0;
    for (const float v : x) total += std::exp(double{v} - largest);
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(got[i], std::exp(double{x[i]} - largest) / total, 1e-6) << n << " at " << i;
      sum += got[i];
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
  }
}

TEST_P(VectorParity, SumsAndNormsAreClose) {
  for (const int64_t n : kLengths) {
    const std::vector<float> a = test::normal_row(9, n);
    const std::vector<float> b = test::normal_row(10, n);
    double dot = 0;
    double size = 0;
    double squares = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      dot += double{a[i]} * b[i];
      size += std::fabs(double{a[i]} * b[i]);
      squares += double{a[i]} * a[i];
    }
    EXPECT_NEAR(table_.dot(a.data(), b.data(), n), dot, size * 1e-6);
    EXPECT_LE(ulps(table_.sum_squares(a.data(), n), static_cast<float>(squares)), 1) << n;
    std::vector<float> got(a.size());
    std::vector<float> want(a.size());
    table_.rms_norm(a.data(), b.data(), 1e-6F, got.data(), n);
    scalar_.rms_norm(a.data(), b.data(), 1e-6F, want.data(), n);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_LE(ulps(got[i], want[i]), 2) << n << " at " << i;
  }
}

TEST_P(VectorParity, CacheRowsAreBitEqual) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::q8_0}) {
    const auto type = static_cast<size_t>(dtype);
    for (const int64_t n : {1, 3, 7, 8, 32, 64, 96, 128}) {
      if (is_quantized(dtype) && n % 32 != 0) continue;
      std::vector<float> x = test::normal_row(11, n);
      x[0] = 1e5F;
      if (n > 6) {
        x[1] = 1e-7F;
        x[2] = -3e-5F;
        x[3] = 65519.0F;
        x[4] = std::bit_cast<float>(0x3f808000U);  // a tie for bf16
        x[5] = std::bit_cast<float>(0x3f818000U);
      }
      std::vector<uint8_t> got(static_cast<size_t>(row_bytes(dtype, n)));
      std::vector<uint8_t> want(got.size());
      table_.store_row[type](x.data(), got.data(), n);
      scalar_.store_row[type](x.data(), want.data(), n);
      ASSERT_EQ(got, want) << dtype_name(dtype) << " " << n;
      std::vector<float> back(x.size());
      std::vector<float> expected(x.size());
      table_.load_row[type](want.data(), back.data(), n);
      scalar_.load_row[type](want.data(), expected.data(), n);
      expect_same(back, expected, "load_row");
    }
  }
}

TEST_P(VectorParity, MergingSpansMatchesScalar) {
  constexpr int64_t kDim = 67;
  const std::vector<float> span = test::normal_row(12, kDim);
  for (const float m : {-INFINITY, -3.0F, 2.0F}) {
    for (const float span_m : {-INFINITY, -50.0F, 2.5F}) {
      std::vector<float> got = test::normal_row(13, kDim);
      std::vector<float> want = got;
      float got_m = m;
      float want_m = m;
      float got_l = m == -INFINITY ? 0.0F : 4.0F;
      float want_l = got_l;
      table_.merge_span(&got_m, &got_l, got.data(), span_m, span_m == -INFINITY ? 0.0F : 3.0F, span.data(), kDim);
      scalar_.merge_span(&want_m, &want_l, want.data(), span_m, span_m == -INFINITY ? 0.0F : 3.0F, span.data(), kDim);
      EXPECT_EQ(got_m, want_m);
      EXPECT_NEAR(got_l, want_l, 1e-5);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, VectorParity, testing::ValuesIn(available_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace inferno
