#include "verify/check.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

// A step of one op on a checked backend.
void run_checked(CheckingBackend& backend, const OpImage& image) {
  WeightCopies weights(backend);
  PlacedOp placed(image, backend, weights);
  placed.run();
}

TEST(Check, PlantedErrorsAreFoundInEveryOp) {
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpId>(i);
    const std::vector<OpCase> cases = op_cases(op);
    for (const bool planted : {false, true}) {
      CheckOptions options;
      if (planted) options.plant = op;
      CheckingBackend backend(create_backend("simd"), create_backend("scalar"), options);
      run_checked(backend, cases.back().image);
      EXPECT_EQ(backend.checked(), 1) << op_name(op);
      EXPECT_EQ(backend.first_divergence().has_value(), planted) << op_name(op) << "\n" << backend.report();
      if (planted) {
        EXPECT_EQ(backend.first_divergence()->op, op);
      }
    }
  }
}

TEST(Check, InsideDefaultBodiesThePrimitiveIsBlamedAndNotTheOpAroundIt) {
  const OpImage image = attention_case({.sequences = {{.cached = 5, .queries = 2}}, .q_heads = 2, .kv_heads = 1}, 1);
  for (const OpId op : {OpId::matmul, OpId::softmax_rows, OpId::kv_load, OpId::scale, OpId::copy_2d_into_cols}) {
    CheckingBackend backend(create_backend("simd", {.fused = false}), create_backend("scalar", {.fused = false}),
                            {.numerics = Numerics::default_bodies, .plant = op});
    run_checked(backend, image);
    ASSERT_TRUE(backend.first_divergence().has_value()) << op_name(op);
    EXPECT_EQ(backend.first_divergence()->op, op);
    EXPECT_EQ(backend.totals()[static_cast<size_t>(OpId::attention)].diverging, 0) << "the error was put right";
  }
}

TEST(Check, LockstepPutsTheReferencesResultInPlaceAndShadowDoesNot) {
  for (const int64_t every : {1, 2}) {
    CheckingBackend backend(create_backend("scalar"), create_backend("simd"), {.every = every});
    const OpImage image = linear_case({.tokens = 3, .k = 100, .n = {50}}, 1);
    const auto reference = create_backend(every == 1 ? "simd" : "scalar");
    const auto run = [&](Backend& on) {
      WeightCopies weights(on);
      PlacedOp placed(image, on, weights);
      placed.run();
      OpImage result = image.clone();
      placed.download(result);
      return result;
    };
    const std::vector<FieldDifference> differences = compare_written(run(*reference), run(backend));
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
  EXPECT_GT(backend.totals()[static_cast<size_t>(OpId::scale)].calls, 0);
  EXPECT_GT(backend.totals()[static_cast<size_t>(OpId::silu)].calls, 0);
}

TEST(Dump, AnyOpSurvivesTheWayThroughAFile) {
  const auto path = scratch_file("op.dump");
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpId>(i);
    const OpCase c = std::move(op_cases(op).back());
    write_dump(path, c.image, {.model = "m", .tested = "simd", .reference = "scalar", .fused = false, .layer = 4});
    const Dump dump = read_dump(path);
    EXPECT_EQ(dump.info.model, "m");
    EXPECT_EQ(dump.info.tested, "simd");
    EXPECT_EQ(dump.info.fused, false);
    EXPECT_EQ(dump.info.layer, 4);
    ASSERT_EQ(dump.image.record().op(), op);
    // The same inputs give the same outputs.
    const auto run = [&](const OpImage& image) {
      const auto backend = create_backend("scalar");
      WeightCopies weights(*backend);
      PlacedOp placed(image, *backend, weights);
      placed.run();
      OpImage result = image.clone();
      placed.download(result);
      return result;
    };
    for (const FieldDifference& d : compare_written(run(c.image), run(dump.image))) {
      EXPECT_EQ(d.nmse, 0) << op_name(op) << " " << d.field;
    }
  }
}

TEST(Dump, AWeightKeepsItsLayer) {
  const auto path = scratch_file("layer.dump");
  OpImage image;
  const Weight* w = image.weight("w", DType::f32, Shape(2, 4), std::vector<std::byte>(2 * 4 * sizeof(float)), 3);
  image.set(LinearArgs{.x = image.tensor({1, 4}), .w = {w}, .out = {image.tensor({1, 2})}});
  write_dump(path, image, {});
  EXPECT_EQ(layer_of(read_dump(path).image.record()), 3);
  image.own_weights();
  EXPECT_EQ(layer_of(image.record()), 3);
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
