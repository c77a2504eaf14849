// Every attention kernel of every table this CPU can run, against the scalar table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/aligned_memory.h"
#include "backend/cpu/kernels/select.h"
#include "quant/quant.h"
#include "quant/test_rows.h"
#include "tensor/dtype.h"

namespace inferno {
namespace {

constexpr DType kCacheTypes[] = {DType::f32, DType::f16, DType::bf16, DType::q8_0};

struct Case {
  int64_t group;
  int64_t tokens;
  int64_t head_dim;
  int64_t page_size;
  int64_t first_position;  // of the first token, inside the span
};

// Keys and values of one span in pages that are not contiguous.
struct Cache {
  std::vector<std::vector<uint8_t>> pages;
  std::vector<const void*> pointers;
};
Cache random_cache(DType dtype, const Case& c, uint32_t seed, float factor = 1) {
  Cache cache;
  for (int64_t p = 0; p < kAttentionSpan; p += c.page_size) {
    std::vector<uint8_t> page(static_cast<size_t>(c.page_size * row_bytes(dtype, c.head_dim)));
    for (int64_t r = 0; r < c.page_size; ++r) {
      std::vector<float> x = test::normal_row(seed + static_cast<uint32_t>(p + r), c.head_dim);
      for (float& value : x) value *= factor;
      quantize_row(dtype, x.data(), page.data() + r * row_bytes(dtype, c.head_dim), c.head_dim);
    }
    cache.pages.push_back(std::move(page));
  }
  for (const auto& page : cache.pages) cache.pointers.push_back(page.data());
  return cache;
}

struct Result {
  std::vector<float> m, l, o;
};

// Tokens [first, first + count) of the case in one call.
Result attend(const AttentionKernel& kernel, DType dtype, const Case& c, const std::vector<float>& q, const Cache& k,
              const Cache& v, int64_t first, int64_t count) {
  const int64_t queries = c.group * count;
  std::vector<int32_t> visible;
  for (int64_t i = 0; i < queries; ++i) {
    visible.push_back(
        static_cast<int32_t>(std::clamp<int64_t>(c.first_position + first + i / c.group + 1, 0, kAttentionSpan)));
  }
  Result r{std::vector<float>(static_cast<size_t>(queries), -7), std::vector<float>(static_cast<size_t>(queries), -7),
           std::vector<float>(static_cast<size_t>(queries * c.head_dim), -7)};
  AlignedMemory scratch = aligned_memory(static_cast<size_t>(kernel.scratch_bytes(queries, c.head_dim)));
  // The stride between tokens is two heads more than the group has.
  const int64_t stride = (c.group + 2) * c.head_dim;
  SpanTask task{};
  task.q = q.data() + first * stride;
  task.group = c.group;
  task.token_stride = stride;
  task.queries = queries;
  task.head_dim = c.head_dim;
  task.visible = visible.data();
  task.k_pages = k.pointers.data();
  task.v_pages = v.pointers.data();
  task.page_size = c.page_size;
  task.row_bytes = row_bytes(dtype, c.head_dim);
  task.scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
  task.next_k_pages = k.pointers.data();
  task.next_v_pages = v.pointers.data();
  task.next_positions = c.first_position;
  task.prefetched = c.first_position % 2 != 0;
  task.m = r.m.data();
  task.l = r.l.data();
  task.o = r.o.data();
  task.scratch = scratch.get();
  kernel.run(task);
  return r;
}

std::vector<float> random_queries(const Case& c) {
  return test::normal_row(99, c.tokens * (c.group + 2) * c.head_dim);
}

constexpr Case kCases[] = {{1, 1, 64, 64, 0},    {2, 1, 128, 64, 255},  {2, 1, 128, 256, 100}, {4, 3, 64, 16, 17},
                           {2, 8, 128, 64, 120}, {1, 7, 32, 32, 3},     {8, 2, 96, 64, 200},   {3, 5, 64, 64, 250},
                           {2, 16, 128, 64, 0},  {6, 1, 128, 128, 130}, {7, 1, 64, 64, 63},    {6, 4, 128, 64, 100},
                           {2, 9, 256, 8, 40},   {2, 27, 128, 64, 90},  {8, 7, 64, 16, 9},     {1, 7, 128, 32, 30},
                           {3, 5, 128, 64, 40}};

class AttentionParity : public testing::TestWithParam<const KernelTable*> {};

TEST_P(AttentionParity, SpansMatchScalar) {
  for (const DType dtype : kCacheTypes) {
    const AttentionKernel& kernel = GetParam()->attention[static_cast<size_t>(dtype)];
    const AttentionKernel& reference = scalar_kernels().attention[static_cast<size_t>(dtype)];
    // bf16: a weight next to a rounding boundary may round the other way when the score differs in its last bit.
    const double tolerance = dtype == DType::bf16 ? 2e-2 : 2e-4;
    for (const Case& c : kCases) {
      if (c.group * c.tokens > kernel.query_block) continue;
      const std::vector<float> q = random_queries(c);
      const Cache k = random_cache(dtype, c, 1000);
      const Cache v = random_cache(dtype, c, 5000);
      const Result got = attend(kernel, dtype, c, q, k, v, 0, c.tokens);
      const Result want = attend(reference, dtype, c, q, k, v, 0, c.tokens);
      const std::string what = std::string(dtype_name(dtype)) + " group " + std::to_string(c.group) + " tokens " +
                               std::to_string(c.tokens) + " dim " + std::to_string(c.head_dim) + " " + kernel.name;
      for (size_t i = 0; i < got.m.size(); ++i) {
        ASSERT_NEAR(got.m[i], want.m[i], 1e-5) << what;
        ASSERT_NEAR(got.l[i], want.l[i], 1e-4 * want.l[i]) << what;
      }
      for (size_t i = 0; i < got.o.size(); ++i) {
        const size_t query = i / static_cast<size_t>(c.head_dim);
        ASSERT_NEAR(got.o[i] / got.l[query], want.o[i] / want.l[query], tolerance) << what << " at " << i;
      }
    }
  }
}

TEST_P(AttentionParity, AnyDimensionOfPlainCachesWorks) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const AttentionKernel& kernel = GetParam()->attention[static_cast<size_t>(dtype)];
    const AttentionKernel& reference = scalar_kernels().attention[static_cast<size_t>(dtype)];
    for (const int64_t dim : {2, 5, 8, 12, 20, 65}) {
      for (const int64_t tokens : {1, 6}) {
        const Case c = {2, tokens, dim, 32, 40};
        const std::vector<float> q = random_queries(c);
        const Cache k = random_cache(dtype, c, 1000);
        const Cache v = random_cache(dtype, c, 5000);
        const Result got = attend(kernel, dtype, c, q, k, v, 0, tokens);
        const Result want = attend(reference, dtype, c, q, k, v, 0, tokens);
        for (size_t i = 0; i < got.o.size(); ++i) {
          const size_t query = i / static_cast<size_t>(dim);
          ASSERT_NEAR(got.o[i] / got.l[query], want.o[i] / want.l[query], dtype == DType::bf16 ? 2e-2 : 2e-4)
              << dtype_name(dtype) << " dim " << dim << " at " << i;
        }
      }
    }
  }
}

// Chunks of tokens give the bits of all together. (A sum of nothing but tiny products is a zero of either sign.)
void expect_same_in_chunks(const AttentionKernel& kernel, DType dtype, const Case& c, const Cache& k, const Cache& v) {
  if (c.group * c.tokens > kernel.query_block) return;
  const std::vector<float> q = random_queries(c);
  const Result all = attend(kernel, dtype, c, q, k, v, 0, c.tokens);
  for (const int64_t chunk : {1, 2, 3, 5}) {
    for (int64_t first = 0; first < c.tokens; first += chunk) {
      const int64_t count = std::min(chunk, c.tokens - first);
      const Result some = attend(kernel, dtype, c, q, k, v, first, count);
      const auto queries = static_cast<size_t>(count * c.group);
      const auto at = static_cast<size_t>(first * c.group);
      const auto dim = static_cast<size_t>(c.head_dim);
      ASSERT_EQ(std::memcmp(some.m.data(), all.m.data() + at, queries * 4), 0) << dtype_name(dtype);
      ASSERT_EQ(std::memcmp(some.l.data(), all.l.data() + at, queries * 4), 0) << dtype_name(dtype);
      const auto from = all.o.begin() + static_cast<ptrdiff_t>(at * dim);
      ASSERT_TRUE(std::equal(some.o.begin(), some.o.end(), from))
          << dtype_name(dtype) << " chunk " << chunk << " from " << first << " dim " << dim;
    }
  }
}

// What makes results independent of how a prompt is chunked.
TEST_P(AttentionParity, AQuerysResultDoesNotDependOnTheOtherQueries) {
  for (const DType dtype : kCacheTypes) {
    const AttentionKernel& kernel = GetParam()->attention[static_cast<size_t>(dtype)];
    for (const Case& c : kCases) {
      expect_same_in_chunks(kernel, dtype, c, random_cache(dtype, c, 1000), random_cache(dtype, c, 5000));
    }
  }
}

// Kernels for few and for many queries agree on what a subnormal is.
TEST_P(AttentionParity, AQuerysResultDoesNotDependOnTheOtherQueriesWhereValuesAreTiny) {
  const AttentionKernel& kernel = GetParam()->attention[static_cast<size_t>(DType::bf16)];
  for (const Case& c : kCases) {
    const Cache values = random_cache(DType::bf16, c, 5000, 1e-38F);
    expect_same_in_chunks(kernel, DType::bf16, c, random_cache(DType::bf16, c, 1000, 4), values);
  }
}

TEST_P(AttentionParity, AQueryThatSeesNothingGivesNothing) {
  for (const DType dtype : kCacheTypes) {
    const AttentionKernel& kernel = GetParam()->attention[static_cast<size_t>(dtype)];
    // The first tokens are before the span: two, or more than a kernel processes together.
    for (const Case& c : {Case{2, 4, 64, 64, -2}, Case{2, 30, 64, 64, -20}}) {
      if (c.group * c.tokens > kernel.query_block) continue;
      const Result r = attend(kernel, dtype, c, random_queries(c), random_cache(dtype, c, 1), random_cache(dtype, c, 2),
                              0, c.tokens);
      const auto blind = static_cast<size_t>(-c.group * c.first_position);
      for (size_t i = 0; i < blind; ++i) {
        EXPECT_EQ(r.m[i], -INFINITY);
        EXPECT_EQ(r.l[i], 0.0F);
        EXPECT_EQ(r.o[i * 64 + 5], 0.0F);
      }
      EXPECT_GT(r.l[blind], 0.0F);
    }
  }
}

// The searched instruction order against the compiler's.
TEST(Assembly, AttentionGivesTheBitsOfIntrinsics) {
  const KernelTable* assembly = find_kernels("neon_i8mm");
  const KernelTable* intrinsics = find_kernels("neon_i8mm_intrinsics");
  if (assembly == nullptr || intrinsics == nullptr) GTEST_SKIP() << "this CPU has no kernels in assembly";
  const auto type = static_cast<size_t>(DType::bf16);
  const AttentionKernel& kernel = assembly->attention[type];
  const AttentionKernel& reference = intrinsics->attention[type];
  ASSERT_NE(kernel.run, reference.run);
  for (const Case& c : kCases) {
    const Cache k = random_cache(DType::bf16, c, 1);
    const Cache v = random_cache(DType::bf16, c, 1000);
    const std::vector<float> q = random_queries(c);
    const Result got = attend(kernel, DType::bf16, c, q, k, v, 0, c.tokens);
    const Result want = attend(reference, DType::bf16, c, q, k, v, 0, c.tokens);
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    EXPECT_TRUE(same(got.m, want.m) && same(got.l, want.l) && same(got.o, want.o))
        << c.group << " heads, " << c.tokens << " tokens, " << c.head_dim << " dimensions";
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, AttentionParity, testing::ValuesIn(available_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace inferno
