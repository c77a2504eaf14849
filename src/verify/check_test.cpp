#include "verify/check.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/select.h"
#include "backend/factory.h"
#include "backend/op_fields.h"
#include "base/error.h"
#include "verify/dump.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

// In a folder that is removed when the program ends.
std::filesystem::path scratch_file(const std::string& name) {
  struct Folder {
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("inferno-verify-test-" + std::to_string(::getpid()));
  };
  static const Folder folder;
  return folder.path / name;
}

// One thread, or more than there may be CPUs.
std::unique_ptr<Backend> with_threads(int threads) {
  if (threads == 1) return create_backend("simd");
  auto pool = std::make_unique<ThreadPool>(ThreadPoolOptions{.threads = threads, .allow_oversubscription = true});
  return std::make_unique<CpuBackend>("parallel", best_kernels(), std::move(pool), DType::bf16);
}

TEST(Check, PlantedErrorsAreFoundInEveryOp) {
  for (const int threads : {1, 4}) {
    for (int i = 0; i < kOpCount; ++i) {
      const auto op = static_cast<OpId>(i);
      const std::vector<OpCase> cases = op_cases(op);
      for (const bool planted : {false, true}) {
        CheckOptions options;
        if (planted) options.plant = op;
        CheckingBackend backend(with_threads(threads), create_backend("scalar"), options);
        (void)run_on(backend, cases.back().image);
        EXPECT_EQ(backend.checked(), 1) << op_name(op);
        EXPECT_EQ(backend.first_divergence().has_value(), planted) << op_name(op) << "\n" << backend.report();
        if (planted) {
          EXPECT_EQ(backend.first_divergence()->blamed, op);
        }
      }
    }
  }
}

// The attention of a layer, at a depth of 20 positions.
OpImage attention_block(DType weight, int32_t queries, bool private_results) {
  return attention_block_case({.attention = {.sequences = {{.cached = 20, .queries = queries}},
                                             .q_heads = 8,
                                             .kv_heads = 4,
                                             .head_dim = 64,
                                             .kv = DType::bf16},
                               .width = 256,
                               .weight = weight,
                               .qk_norm = true},
                              private_results, 1);
}

// With the arguments that only some families use, too, ops that run joined give the bits of the ops apart.
TEST(Check, AGroupHasTheBitsOfItsOpsApart) {
  const auto result = [](const QkvShape& shape, int threads, bool private_results) {
    const OpImage image = run_on(*with_threads(threads), attention_block_case(shape, private_results, 1));
    const Tensor& out = image.records().back().args<LinearArgs>().out[0];
    return std::vector<float>(out.f32(), out.f32() + out.elements());
  };
  for (const int32_t queries : {1, 5}) {
    const QkvShape plain{.attention = {.sequences = {{.cached = 300, .queries = queries}},
                                       .q_heads = 8,
                                       .kv_heads = 4,
                                       .kv = DType::bf16},
                         .width = 256,
                         .weight = DType::q8_0,
                         .qk_norm = true};
    std::vector<QkvShape> shapes(4, plain);
    shapes[1].attention.window = 100;
    shapes[2].attention.softcap = 4;
    shapes[2].attention.sinks = true;
    shapes[3].attention.window = 280;
    shapes[3].gate = shapes[3].row_norms = shapes[3].v_norm = true;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const std::vector<float> apart = result(shapes[i], 1, false);
      for (const int threads : {1, 4, 7}) {
        EXPECT_EQ(result(shapes[i], threads, true), apart) << "shape " << i << ", " << threads << " threads";
      }
    }
  }
}

TEST(Check, PlantedErrorsAreFoundInEveryOpOfAGroupAsItRunsFused) {
  const std::vector<OpId> group = {OpId::qkv_rope_store, OpId::attention, OpId::linear};
  for (const int threads : {1, 2, 4, 7}) {
    for (const DType weight : {DType::f32, DType::f16, DType::q8_0, DType::q4_k}) {
      for (const int32_t queries : {1, 5}) {
        SCOPED_TRACE(std::string(dtype_name(weight)) + ", threads " + std::to_string(threads) + ", queries " +
                     std::to_string(queries));
        std::vector<std::optional<OpId>> planted = {std::nullopt};
        planted.insert(planted.end(), group.begin(), group.end());
        for (const std::optional<OpId>& op : planted) {
          CheckingBackend backend(with_threads(threads), create_backend("scalar"), {.plant = op});
          backend.set_timing(true);
          (void)run_on(backend, attention_block(weight, queries, true));
          EXPECT_EQ(backend.checked(), 3);
          ASSERT_EQ(backend.totals().size(), 1U);
          EXPECT_EQ(backend.totals().begin()->first, group);
          ASSERT_EQ(backend.first_divergence().has_value(), op.has_value()) << backend.report();
          if (op) {
            EXPECT_EQ(backend.first_divergence()->blamed, op);
          }
          // The ops that were compared ran as users' ops do.
          const StepTimes& times = *backend.step_times();
          ASSERT_GE(times.ops.size(), 3U);
          const bool joins = threads >= 4 && queries == 1;
          EXPECT_EQ(times.fused[1], joins ? 1 : 0);
#ifdef __x86_64__
          // A kv head's columns of the output projection's input are converted where they are whole blocks.
          constexpr int64_t kColumns = 2 * 64;
          const bool converts = joins && is_quantized(weight) && kColumns % dtype_info(weight).block_size == 0;
          EXPECT_EQ(times.fused[2], converts ? 1 : 0);
#endif
        }
      }
    }
  }
}

// Default bodies, as a device in wide mode has them: activations are not quantized.
class WideBackend final : public BackendDecorator {
 public:
  WideBackend() : BackendDecorator(create_backend("scalar", {.fused = false})) {}
  [[nodiscard]] bool is_wide(const OpRecord& /*record*/) const override { return true; }
};

TEST(Check, WideOpsAreHeldToAnExactReferenceAndToNarrowerLimits) {
  // Few large activations: 8 bits of the largest are few bits for the others.
  const OpImage image = linear_case({.tokens = 5, .k = 512, .weight = DType::q5_k}, 1);
  float* x = image.record().args<LinearArgs>().x.f32();
  for (int64_t i = 0; i < 5 * 512; i += 256) x[i] = 100;
  const CheckOptions options{.numerics = Numerics::definition};
  CheckingBackend contract(std::make_unique<WideBackend>(), create_backend("scalar"), options);
  (void)run_on(contract, image);
  ASSERT_TRUE(contract.last().has_value());
  CheckingBackend exact(std::make_unique<WideBackend>(), create_backend("scalar"), options,
                        create_backend("scalar", {.fused = false}));
  (void)run_on(exact, image);
  EXPECT_FALSE(exact.first_divergence().has_value()) << exact.report();
  EXPECT_LT(exact.worst().empty() ? 0 : exact.worst().front().worst.nmse, contract.worst().front().worst.nmse);
  CheckOptions planted = options;
  planted.plant = OpId::linear;
  CheckingBackend wrong(std::make_unique<WideBackend>(), create_backend("scalar"), planted,
                        create_backend("scalar", {.fused = false}));
  (void)run_on(wrong, image);
  EXPECT_TRUE(wrong.first_divergence().has_value());
  const OpRecord& record = image.record();
  EXPECT_LT(nmse_limit(record, Numerics::wide), nmse_limit(record, Numerics::definition));
}

TEST(Check, OpsWithoutPrivateResultsAreComparedOneByOneAndNeverFused) {
  CheckingBackend backend(with_threads(4), create_backend("scalar"), {});
  backend.set_timing(true);
  (void)run_on(backend, attention_block(DType::q8_0, 1, false));
  EXPECT_EQ(backend.totals().size(), 3U);
  EXPECT_EQ(backend.step_times()->fused, (std::vector<uint8_t>{0, 0, 0}));
  const auto alone = with_threads(4);
  alone->set_timing(true);
  (void)run_on(*alone, attention_block(DType::q8_0, 1, false));
  EXPECT_EQ(alone->step_times()->fused, (std::vector<uint8_t>{0, 0, 0}));
}

// A backend that is wrong only where ops run as one.
class WrongWhenFused final : public BackendDecorator {
 public:
  using BackendDecorator::BackendDecorator;
  void attention(const AttentionArgs& args) override {
    AttentionArgs changed = args;
    if (args.private_result) changed.scale *= 2;
    inner().attention(changed);
  }
};

TEST(Check, AnErrorOfTheFusedFormAloneIsFoundAndBlamedOnNoOp) {
  for (const int64_t every : {1, 2}) {
    CheckingBackend backend(std::make_unique<WrongWhenFused>(create_backend("simd")), create_backend("scalar"),
                            {.every = every});
    const OpImage image = attention_block(DType::q8_0, 5, true);
    WeightCopies weights(backend);
    PlacedOp placed(image, backend, weights);
    while (!backend.first_divergence() && backend.checked() < 6) placed.run();
    ASSERT_TRUE(backend.first_divergence().has_value()) << backend.report();
    EXPECT_EQ(backend.first_divergence()->blamed, std::nullopt);
    EXPECT_NE(backend.report().find("none diverges by itself: how they run as one is to blame"), std::string::npos);
  }
}

TEST(Check, LookingForTheOpToBlameLeavesAShadowedRunAlone) {
  const OpImage image = attention_block(DType::q8_0, 5, true);
  WrongWhenFused wrong(create_backend("simd"));
  const OpImage expected = run_on(wrong, image);
  CheckingBackend backend(std::make_unique<WrongWhenFused>(create_backend("simd")), create_backend("scalar"),
                          {.every = 2});
  for (int i = 0; i < 8 && !backend.first_divergence(); ++i) {
    for (const FieldDifference& d : compare_written(image, expected, run_on(backend, image))) EXPECT_EQ(d.max_ulp, 0U);
  }
  EXPECT_TRUE(backend.first_divergence().has_value());
}

TEST(Check, ASmallErrorBesideALargeResidualIsFound) {
  OpImage image = attention_block(DType::f16, 5, true);
  const Tensor& x = image.records()[0].args<QkvRopeStoreArgs>().x;
  for (int64_t i = 0; i < x.elements(); ++i) x.f32()[i] *= 1e4F;  // the projections normalize it
  for (const bool planted : {false, true}) {
    CheckingBackend backend(create_backend("simd"), create_backend("scalar"),
                            {.plant = planted ? std::optional(OpId::attention) : std::nullopt});
    (void)run_on(backend, image);
    EXPECT_EQ(backend.first_divergence().has_value(), planted) << backend.report();
  }
}

TEST(Check, InsideDefaultBodiesThePrimitiveIsBlamedAndNotTheOpAroundIt) {
  const OpImage image = attention_case({.sequences = {{.cached = 5, .queries = 2}}, .q_heads = 2, .kv_heads = 1}, 1);
  for (const OpId op : {OpId::matmul, OpId::softmax_rows, OpId::kv_load, OpId::scale, OpId::copy_2d_into_cols}) {
    CheckingBackend backend(create_backend("simd", {.fused = false}), create_backend("scalar", {.fused = false}),
                            {.numerics = Numerics::default_bodies, .plant = op});
    (void)run_on(backend, image);
    ASSERT_TRUE(backend.first_divergence().has_value()) << op_name(op);
    EXPECT_EQ(backend.first_divergence()->blamed, op);
    EXPECT_EQ(backend.totals().at({OpId::attention}).diverging, 0) << "the error was put right";
  }
}

TEST(Check, LockstepPutsTheReferencesResultInPlaceAndShadowDoesNot) {
  for (const int64_t every : {1, 2}) {
    CheckingBackend backend(create_backend("scalar"), create_backend("simd"), {.every = every});
    const OpImage image = linear_case({.tokens = 3, .k = 100, .n = {50}}, 1);
    const auto reference = create_backend(every == 1 ? "simd" : "scalar");
    const std::vector<FieldDifference> differences =
        compare_written(image, run_on(*reference, image), run_on(backend, image));
    EXPECT_EQ(differences[0].nmse, 0) << every;
  }
}

TEST(Check, ShadowChecksOneOpInN) {
  CheckingBackend backend(create_backend("scalar"), create_backend("scalar"), {.every = 3});
  std::vector<float> x(8, 1.0F);
  const Tensor t{x.data(), Shape(1, 8), DType::f32};
  backend.begin_step(StepMode::run);
  for (int i = 0; i < 12; ++i) backend.scale({.x = t, .s = 1.5F, .out = t});
  backend.end_step();
  EXPECT_EQ(backend.checked(), 4);
  EXPECT_FALSE(backend.first_divergence());
}

TEST(Check, ShadowReachesEveryOpOfAStepItsRateDivides) {
  CheckingBackend backend(create_backend("scalar"), create_backend("scalar"), {.every = 2});
  std::vector<float> x(8, 1.0F);
  const Tensor t{x.data(), Shape(1, 8), DType::f32};
  for (int step = 0; step < 20; ++step) {
    backend.begin_step(StepMode::run);
    backend.scale({.x = t, .s = 1.5F, .out = t});
    backend.silu({.x = t, .out = t});
    backend.end_step();
  }
  EXPECT_EQ(backend.checked(), 20);
  EXPECT_TRUE(backend.has_checked(OpId::scale));
  EXPECT_TRUE(backend.has_checked(OpId::silu));
}

// The same inputs give the same outputs.
void expect_same_results(const OpImage& image, const OpImage& read) {
  const auto backend = create_backend("scalar");
  for (const FieldDifference& d : compare_written(image, run_on(*backend, image), run_on(*backend, read))) {
    EXPECT_EQ(d.nmse, 0) << d.field;
  }
}

TEST(Dump, AnyOpSurvivesTheWayThroughAFile) {
  const auto path = scratch_file("op.dump");
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpId>(i);
    SCOPED_TRACE(op_name(op));
    const OpCase c = std::move(op_cases(op).back());
    write_dump(path, c.image, {.model = "m", .tested = "simd", .reference = "scalar", .fused = false, .layer = 4});
    const Dump dump = read_dump(path);
    EXPECT_EQ(dump.info.model, "m");
    EXPECT_EQ(dump.info.tested, "simd");
    EXPECT_EQ(dump.info.fused, false);
    EXPECT_EQ(dump.info.layer, 4);
    ASSERT_EQ(dump.image.record().op(), op);
    expect_same_results(c.image, dump.image);
  }
}

TEST(Dump, AWeightKeepsItsLayer) {
  const auto path = scratch_file("layer.dump");
  OpImage image;
  const Weight* w = image.weight("w", DType::f32, Shape(2, 4), std::vector<std::byte>(2 * 4 * sizeof(float)), 3);
  image.add(LinearArgs{.x = image.tensor({1, 4}), .w = {w}, .out = {image.tensor({1, 2})}});
  write_dump(path, image, {});
  EXPECT_EQ(layer_of(read_dump(path).image.records().front()), 3);
  image.own_weights();
  EXPECT_EQ(layer_of(image.records().front()), 3);
}

TEST(Dump, AGroupIsReplayedAsTheGroupItIs) {
  const auto path = scratch_file("group.dump");
  const OpImage image = attention_block(DType::q8_0, 1, true);
  write_dump(path, image, {});
  const Dump dump = read_dump(path);
  ASSERT_EQ(dump.image.records().size(), 3U);
  expect_same_results(image, dump.image);
  const OpCheck check = check_image(dump.image, with_threads(4), create_backend("scalar"), Numerics::cpu_kernels);
  EXPECT_EQ(check.name(), "qkv_rope_store + attention + linear");
  EXPECT_FALSE(check.diverges());
  const OpCheck wrong = check_image(dump.image, std::make_unique<WrongWhenFused>(create_backend("simd")),
                                    create_backend("scalar"), Numerics::cpu_kernels);
  EXPECT_TRUE(wrong.diverges());
  EXPECT_EQ(wrong.blamed, std::nullopt);
}

TEST(Dump, ADamagedFileIsAnError) {
  const auto path = scratch_file("damaged.dump");
  write_dump(path, linear_case({.tokens = 2}, 1), {});
  std::string bytes;
  {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  const auto write = [&](const std::string& content) { std::ofstream(path, std::ios::binary) << content; };
  for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 200) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write(damaged);
    EXPECT_THROW(read_dump(path), Error) << at;
    write(bytes.substr(0, at));
    EXPECT_THROW(read_dump(path), Error) << "cut at " << at;
  }
  EXPECT_THROW(read_dump(scratch_file("missing")), Error);
}

}  // namespace
}  // namespace inferno
