// Groups of ops (op_group.h): results that may stay unwritten, and who must know.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/select.h"
#include "backend/decorator.h"
#include "backend/factory.h"
#include "backend/placement.h"
#include "base/error.h"
#include "verify/check.h"
#include "verify/compare.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

OpImage attention_block(DType weight, int32_t queries, bool private_results) {
  return attention_block_case({.attention = {.sequences = {{.cached = 5, .queries = queries}},
                                             .q_heads = 8,
                                             .kv_heads = 4,
                                             .head_dim = 64,
                                             .kv = DType::bf16},
                               .width = 256,
                               .weight = weight,
                               .qk_norm = true},
                              private_results, 1);
}

TEST(Groups, RunAsOneOrOneByOneTheyGiveTheSameBits) {
  for (const int threads : {1, 4, 7}) {
    CpuBackend backend(
        "parallel", best_kernels(),
        std::make_unique<ThreadPool>(ThreadPoolOptions{.threads = threads, .allow_oversubscription = true}),
        DType::bf16);
    for (const DType weight : {DType::f32, DType::bf16, DType::q8_0, DType::q4_k}) {
      for (const int32_t queries : {1, 5}) {
        // The reference's private results are made as public ones.
        const OpImage image = attention_block(weight, queries, true);
        OpImage apart = image.clone();
        const OpImage made = run_on(backend, attention_block(weight, queries, false));
        for (size_t i = 0; i < made.block_count(); ++i) std::ranges::copy(made.block(i), apart.block(i).begin());
        for (const FieldDifference& d : compare_written(image, apart, run_on(backend, image))) {
          EXPECT_EQ(d.max_ulp, 0U) << d.field << ", " << dtype_name(weight) << ", " << threads << " threads";
        }
      }
    }
  }
}

TEST(Groups, PlantedErrorsAreFoundOnADeviceAsItsGroupsRunFused) {
  try {
    (void)create_backend("cuda");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  for (const DType weight : {DType::bf16, DType::q8_0}) {
    for (const int32_t queries : {1, 5, 200}) {
      SCOPED_TRACE(std::string(dtype_name(weight)) + ", queries " + std::to_string(queries));
      for (const std::optional<OpId> op : {std::optional<OpId>(), std::optional(OpId::qkv_rope_store),
                                           std::optional(OpId::attention), std::optional(OpId::linear)}) {
        CheckingBackend backend(create_backend("cuda"), create_backend("scalar"),
                                {.numerics = Numerics::definition, .plant = op});
        backend.set_timing(true);
        const OpImage image = attention_block(weight, queries, true);
        WeightCopies weights(backend);
        PlacedOp placed(image, backend, weights);
        placed.run();
        ASSERT_EQ(backend.first_divergence().has_value(), op.has_value()) << backend.report();
        if (op) {
          EXPECT_EQ(backend.first_divergence()->blamed, op);
        } else if (queries == 1) {
          EXPECT_EQ(backend.step_times()->fused, (std::vector<uint8_t>{0, 1, 0}));
        }
      }
    }
  }
}

// Each number of sequences has its own kernels: a cluster of blocks per pair of token and kv head, one block, blocks
// that loop over pairs, and more of those.
TEST(Groups, DecodeOnADeviceHoldsForAnyNumberOfSequences) {
  try {
    (void)create_backend("cuda");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  constexpr int32_t kCached[] = {0, 1, 15, 16, 63, 64, 65, 129, 200, 333};
  for (const int32_t head_dim : {64, 128}) {
    for (const int32_t group : {1, 2, 5, 8}) {
      for (const int32_t sequences : {8, 20, 34, 200}) {
        SCOPED_TRACE(std::to_string(sequences) + " sequences, " + std::to_string(group) + " heads of " +
                     std::to_string(head_dim));
        QkvShape shape{.attention = {.q_heads = 4 * group,
                                     .kv_heads = 4,
                                     .head_dim = head_dim,
                                     .page_size = 64,
                                     .kv = DType::bf16},
                       .width = 256,
                       .weight = group == 5 ? DType::q8_0 : DType::bf16,
                       .qk_norm = true};
        for (int32_t s = 0; s < sequences; ++s) {
          shape.attention.sequences.push_back({.cached = kCached[s % std::ssize(kCached)], .queries = 1});
        }
        CheckingBackend backend(create_backend("cuda"), create_backend("scalar"), {.numerics = Numerics::definition});
        const OpImage image = attention_block_case(shape, true, 1);
        WeightCopies weights(backend);
        PlacedOp placed(image, backend, weights);
        placed.run();
        EXPECT_FALSE(backend.first_divergence().has_value()) << backend.report();
      }
    }
  }
}

// A backend that hides its memory from the host, as a device does.
class Hidden final : public BackendDecorator {
 public:
  using BackendDecorator::BackendDecorator;
  [[nodiscard]] bool host_visible() const override { return false; }
  [[nodiscard]] bool cpu_numerics() const override { return false; }
};

// What a backend's ops say about their results.
class Tags final : public BackendDecorator {
 public:
  Tags(std::unique_ptr<Backend> inner, std::vector<std::string>& seen)
      : BackendDecorator(std::move(inner)), seen_(seen) {}
  void qkv_rope_store(const QkvRopeStoreArgs& args) override {
    note("qkv", args.private_result);
    inner().qkv_rope_store(args);
  }
  void attention(const AttentionArgs& args) override {
    note("attention", args.private_result);
    inner().attention(args);
  }

 private:
  void note(std::string_view op, bool is_private) {
    seen_.push_back(std::string(name()) + " " + std::string(op) + (is_private ? ", private" : ""));
  }
  std::vector<std::string>& seen_;
};

TEST(Groups, ResultsArePrivateOnlyWhereTheirReaderRunsOnTheSameBackend) {
  const OpImage image =
      attention_block(DType::q8_0, static_cast<int32_t>(create_backend("scalar")->min_offload_rows()), true);
  const OpImage expected = run_on(*create_backend("scalar"), image);
  const auto run = [&](std::string_view choice, bool hidden) {
    std::vector<std::string> seen;
    const PlacementSpec spec = parse_placement(choice);
    std::map<std::string, std::unique_ptr<Backend>> others;
    for (const PlacementRule& rule : spec.rules) {
      std::unique_ptr<Backend> made = create_backend(rule.backend);
      if (hidden) made = std::make_unique<Hidden>(std::move(made));
      others.emplace(rule.backend, std::make_unique<Tags>(std::move(made), seen));
    }
    PlacementBackend backend(std::make_unique<Tags>(create_backend("scalar"), seen), spec, std::move(others));
    for (const FieldDifference& d : compare_written(image, expected, run_on(backend, image))) {
      EXPECT_LT(d.nmse, 1e-4) << choice << " " << d.field;
    }
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    seen.erase(seen.begin(), seen.end() - 2);  // those of planning
    return seen;
  };
  using Seen = std::vector<std::string>;
  EXPECT_EQ(run("scalar", false), (Seen{"scalar qkv, private", "scalar attention, private"}));
  EXPECT_EQ(run("scalar,attention=simd", false), (Seen{"scalar qkv", "simd attention"}));
  EXPECT_EQ(run("scalar,linear=simd", false), (Seen{"scalar qkv, private", "scalar attention"}));
  EXPECT_EQ(run("scalar,*=simd", false), (Seen{"simd qkv, private", "simd attention, private"}));
  EXPECT_EQ(run("scalar,*=simd", true), (Seen{"simd qkv", "simd attention"})) << "each op travels alone";
}

}  // namespace
}  // namespace inferno
