#include "backend/placement.h"

#include <gtest/gtest.h>

#include "backend/factory.h"
#include "backend/tracing.h"
#include "base/error.h"

namespace inferno {
namespace {

TEST(Placement, RulesNameOpsLayersAndBackends) {
  const PlacementSpec spec = parse_placement("parallel, attention=scalar,blk.3.linear=simd,q*=simd");
  EXPECT_EQ(spec.backend, "parallel");
  EXPECT_EQ(spec.choice(OpId::embed, -1), "parallel");
  EXPECT_EQ(spec.choice(OpId::attention, 7), "scalar");
  EXPECT_EQ(spec.choice(OpId::linear, 3), "simd");
  EXPECT_EQ(spec.choice(OpId::linear, 4), "parallel");
  EXPECT_EQ(spec.choice(OpId::qkv_rope_store, 0), "simd");
  EXPECT_EQ(parse_placement("scalar,*=simd,embed=scalar").choice(OpId::embed, -1), "scalar") << "the last rule counts";
}

std::string error_of(std::string_view spec) {
  try {
    (void)create_backend(spec);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage);
    return error.what();
  }
  return "";
}

TEST(Placement, BadRulesAreUsageErrorsThatHelp) {
  EXPECT_NE(error_of("scalar,atention=simd").find("did you mean \"attention\"?"), std::string::npos);
  EXPECT_NE(error_of("scalar,atention=simd").find("kv_store"), std::string::npos);
  EXPECT_NE(error_of("scalar,linear").find("[blk.N.]OP=BACKEND"), std::string::npos);
  EXPECT_NE(error_of("scalar,blk.x.linear=simd").find("blk.N."), std::string::npos);
  EXPECT_NE(error_of("scalar,blk.3=simd").find("blk.N."), std::string::npos);
  EXPECT_NE(error_of("scalar,linear=fast").find("supported: scalar"), std::string::npos);
  EXPECT_NE(error_of("fast,linear=simd").find("unknown backend \"fast\""), std::string::npos);
}

// A backend that hides its memory from the host, as a device does.
class Hidden final : public BackendDecorator {
 public:
  using BackendDecorator::BackendDecorator;
  [[nodiscard]] bool host_visible() const override { return false; }
  [[nodiscard]] bool cpu_numerics() const override { return false; }
};

constexpr int64_t kFewestRows = 32;  // Backend::min_offload_rows()

struct Outcome {
  std::vector<std::string> lines;  // ops as the backends saw them
  std::vector<float> result;
};

// x is normalized and multiplied by two weights, of layers 0 and 1.
Outcome run_chain(std::string_view choice, bool hidden, int64_t rows = kFewestRows) {
  Outcome outcome;
  const PlacementSpec spec = parse_placement(choice);
  const auto make = [&](const std::string& name, bool hide) -> std::unique_ptr<Backend> {
    std::unique_ptr<Backend> made = create_backend(name);
    if (hide) made = std::make_unique<Hidden>(std::move(made));
    return std::make_unique<TracingBackend>(
        std::move(made), [&](const std::string& line) { outcome.lines.push_back(line.substr(0, 16)); });
  };
  std::map<std::string, std::unique_ptr<Backend>> others;
  for (const PlacementRule& rule : spec.rules) others.emplace(rule.backend, make(rule.backend, hidden));
  PlacementBackend backend(make(spec.backend, false), spec, std::move(others));

  OpImage image;
  std::vector<std::byte> ones(64 * 64 * 4);
  for (size_t i = 0; i < 64 * 64; ++i) reinterpret_cast<float*>(ones.data())[i] = static_cast<float>(i % 7) - 3;
  std::vector<std::unique_ptr<Weight>> weights;
  for (const int32_t layer : {0, 1}) {
    weights.push_back(
        backend.load_weight(WeightRows(HostWeight("w", DType::f32, Shape(64, 64), ones, layer)), WeightUse::matmul));
  }
  const Tensor x = image.tensor({rows, 64});
  const Tensor y = image.tensor({rows, 64});
  for (int64_t i = 0; i < x.elements(); ++i) x.f32()[i] = static_cast<float>(i % 128) / 64;
  for (const StepMode mode : {StepMode::plan, StepMode::run}) {
    backend.begin_step(mode);
    backend.scale({.x = x, .s = 0.5F, .out = x});
    LinearArgs linear{.x = x};
    linear.w[0] = weights[0].get();
    linear.out[0] = y;
    backend.linear(linear);
    backend.add_scalar({.x = y, .s = 1, .out = y});
    linear.x = y;
    linear.w[0] = weights[1].get();
    linear.out[0] = x;
    backend.linear(linear);
    backend.end_step();
  }
  outcome.result.assign(x.f32(), x.f32() + x.elements());
  return outcome;
}

TEST(Placement, OpsRunWhereTheRulesSay) {
  for (const bool hidden : {false, true}) {
    const Outcome alone = run_chain("scalar", false);
    const Outcome placed = run_chain("scalar,blk.1.linear=simd,add_scalar=simd", hidden);
    EXPECT_EQ(placed.lines, (std::vector<std::string>{"[SCALAR] [scale]", "[SCALAR] [linear", "[SIMD] [add_scal",
                                                      "[SIMD] [linear] "}));
    for (size_t i = 0; i < alone.result.size(); ++i) EXPECT_NEAR(placed.result[i], alone.result[i], 1e-2) << hidden;
  }
}

TEST(Placement, ProductsOfFewRowsAreNotSentToADevice) {
  const Outcome few = run_chain("scalar,blk.1.linear=simd,add_scalar=simd", true, kFewestRows - 1);
  EXPECT_EQ(few.lines,
            (std::vector<std::string>{"[SCALAR] [scale]", "[SCALAR] [linear", "[SIMD] [add_scal", "[SCALAR] [linear"}));
}

// A device whose memory the host sees, as Metal's; it counts copies in steps.
class SharedDevice final : public BackendDecorator {
 public:
  SharedDevice(std::unique_ptr<Backend> inner, int* copies) : BackendDecorator(std::move(inner)), copies_(copies) {}
  [[nodiscard]] bool host_visible() const override { return true; }
  [[nodiscard]] bool cpu_numerics() const override { return false; }
  [[nodiscard]] int64_t min_offload_rows() const override { return 2; }
  void upload(void* destination, const void* host, size_t bytes) override {
    ++*copies_;
    BackendDecorator::upload(destination, host, bytes);
  }
  void download(void* host, const void* source, size_t bytes) override {
    ++*copies_;
    BackendDecorator::download(host, source, bytes);
  }

 private:
  int* copies_;
};

// out = x * w on `main`, with the rules.
struct Product {
  std::vector<float> out;
  int copies = 0;
};
Product run_product(bool main_is_device, int64_t rows) {
  Product result;
  const auto device = [&] { return std::make_unique<SharedDevice>(create_backend("scalar"), &result.copies); };
  std::map<std::string, std::unique_ptr<Backend>> others;
  std::unique_ptr<Backend> main;
  if (main_is_device) {
    main = device();
    others.emplace("simd", create_backend("simd"));
  } else {
    main = create_backend("scalar");
    others.emplace("simd", device());
  }
  PlacementBackend backend(std::move(main), parse_placement("scalar,linear=simd"), std::move(others));
  std::vector<std::byte> ones(8 * 8 * sizeof(float));
  for (size_t i = 0; i < 64; ++i) reinterpret_cast<float*>(ones.data())[i] = static_cast<float>(i % 5);
  const auto weight =
      backend.load_weight(WeightRows(HostWeight("w", DType::f32, Shape(8, 8), ones, 0)), WeightUse::matmul);
  OpImage image;
  const Tensor x = image.tensor({rows, 8});
  const Tensor y = image.tensor({rows, 8});
  for (int64_t i = 0; i < x.elements(); ++i) x.f32()[i] = static_cast<float>(i % 3);
  for (const StepMode mode : {StepMode::plan, StepMode::run}) {
    backend.begin_step(mode);
    LinearArgs linear{.x = x};
    linear.w[0] = weight.get();
    linear.out[0] = y;
    backend.linear(linear);
    backend.end_step();
  }
  result.out.assign(y.f32(), y.f32() + y.elements());
  return result;
}

TEST(Placement, ACpuBackendWorksInTheMemoryOfADeviceThatSharesIt) {
  const Product placed = run_product(true, 3);
  EXPECT_EQ(placed.copies, 0);
  EXPECT_EQ(placed.out, run_product(false, 3).out);
}

TEST(Placement, ADeviceGetsCopiesAndSaysFromHowManyRowsOn) {
  EXPECT_GT(run_product(false, 2).copies, 0);
  EXPECT_EQ(run_product(false, 1).copies, 0) << "one row stays on the CPU";
}

TEST(Placement, ARuleThatMatchesNothingIsAUsageError) {
  try {
    (void)run_chain("scalar,blk.5.linear=simd", false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage);
    EXPECT_STREQ(error.what(), "no op of this model matches \"blk.5.linear=simd\" in `backend`");
  }
}

}  // namespace
}  // namespace inferno
