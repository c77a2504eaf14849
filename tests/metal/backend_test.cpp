// The Metal backend above its device: weights, order, what it refuses.
#include "backend/metal/metal_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "address_sanitizer.h"
#include "backend/factory.h"
#include "backend/metal/kernels/args.h"
#include "backend/metal/weight_planes.h"
#include "backend/op_fields.h"
#include "backend/placement.h"
#include "base/error.h"
#include "base/thread_sanitizer.h"
#include "emulated_device.h"
#include "quant/quant.h"
#include "verify/compare.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

TEST(MetalWeights, PlanesGiveBackTheFilesBytes) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kCols = 512;
  for (const DType dtype : kWeightTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    const metal::PlaneLayout layout = metal::plane_layout(dtype, kRows, kCols);
    const auto row = static_cast<size_t>(row_bytes(dtype, kCols));
    std::vector<std::byte> file(row * kRows);
    uint32_t state = 1;
    for (std::byte& byte : file) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
    std::vector<std::byte> planes(layout.bytes);
    for (int64_t r = 0; r < kRows; ++r) {
      metal::pack_row(dtype, layout, r, file.data() + static_cast<size_t>(r) * row, planes);
    }
    std::vector<std::byte> back(row);
    for (int64_t r = 0; r < kRows; ++r) {
      metal::unpack_row(dtype, layout, r, planes, back.data());
      EXPECT_TRUE(std::equal(back.begin(), back.end(), file.begin() + r * static_cast<int64_t>(row))) << "row " << r;
    }
  }
}

// More are multiplied in tiles, which add up in another order.
TEST(MetalProducts, ATokensResultDoesNotDependOnItsMatesUpToEight) {
  for (const DType dtype : {DType::f16, DType::q4_k, DType::q6_k}) {
    SCOPED_TRACE(dtype_name(dtype));
    metal::MetalBackend backend(std::make_unique<test::EmulatedDevice>());
    LinearShape shape{.tokens = 8, .k = 512, .n = {13}, .weight = dtype};
    const OpImage together = run_on(backend, linear_case(shape, 1));
    const float* all = together.record().args<LinearArgs>().out[0].f32();
    for (int32_t t = 0; t < 8; ++t) {
      shape.rows = {t};
      const OpImage alone = run_on(backend, linear_case(shape, 1));
      const float* one = alone.record().args<LinearArgs>().out[0].f32();
      EXPECT_TRUE(std::equal(one, one + 13, all + t * 13)) << "token " << t;
    }
  }
}

// Runs the op with a device that counts.
struct Counts {
  int64_t dispatches = 0;
  int64_t barriers = 0;
};
Counts counts_of(const OpImage& image) {
  auto device = std::make_unique<test::EmulatedDevice>();
  const test::EmulatedDevice& counter = *device;
  metal::MetalBackend backend(std::move(device));
  (void)run_on(backend, image);
  return {counter.dispatches(), counter.barriers()};
}

TEST(MetalOrder, OnlyKernelsThatDependOnEachOtherWait) {
  // Three products of the same input, side by side.
  const OpImage three = linear_case({.tokens = 2, .k = 64, .n = {32, 16, 16}}, 1);
  EXPECT_EQ(counts_of(three).dispatches, 3);
  EXPECT_EQ(counts_of(three).barriers, 0);
  // Gate and up beside each other, then their product.
  const OpImage gated = linear_case({.tokens = 2, .k = 64, .n = {32, 32}, .swiglu = true}, 1);
  EXPECT_EQ(counts_of(gated).dispatches, 3);
  EXPECT_EQ(counts_of(gated).barriers, 1);
}

// docs/decisions/metal.md counts with these numbers.
TEST(MetalOrder, ALayerOfQwen3IsFifteenDispatches) {
  const OpImage attention =
      attention_block_case({.attention = {.sequences = {{.cached = 5, .queries = 1}}, .q_heads = 4, .kv_heads = 2},
                            .width = 64,
                            .qk_norm = true},
                           true, 1);
  EXPECT_EQ(counts_of(attention).dispatches, 10);
  EXPECT_EQ(counts_of(attention).barriers, 6);
  const OpImage mlp = mlp_case({}, 1);
  EXPECT_EQ(counts_of(mlp).dispatches, 5);
  EXPECT_EQ(counts_of(mlp).barriers, 3);
}

TEST(MetalOrder, DrawingIsTwoDispatchesAndWaitsForNothingElse) {
  const OpImage greedy = op_cases(OpId::sample).front().image.clone();
  EXPECT_EQ(counts_of(greedy).dispatches, 2);
  EXPECT_EQ(counts_of(greedy).barriers, 1);
}

// A device between the backend and the emulator that makes one mistake.
enum class Mistake : uint8_t {
  none,
  no_barriers,
  swapped_buffers,
  wrong_args_field,
  one_group_less,
  one_tile_of_tokens_less,
  one_token_less,
  one_token_more,
  one_row_less,
  one_row_more
};
class FaultyDevice final : public metal::Device {
 public:
  explicit FaultyDevice(Mistake mistake) : mistake_(mistake) {}
  [[nodiscard]] std::string description() const override { return "faulty"; }
  [[nodiscard]] uint64_t free_memory() const override { return device_.free_memory(); }
  [[nodiscard]] std::byte* allocate(size_t bytes) override { return device_.allocate(bytes); }
  void prepare(const metal::KernelId& kernel) override { device_.prepare(kernel); }
  void dispatch(const metal::Dispatch& what) override {
    metal::Dispatch changed = what;
    std::vector<std::byte> args(what.args.begin(), what.args.end());
    std::vector<metal::Binding> buffers(what.buffers.begin(), what.buffers.end());
    if (what.kernel.kernel == metal::Kernel::activate && mistake_ == Mistake::swapped_buffers) {
      std::swap(buffers[0], buffers[1]);  // x and factor
    }
    if (what.kernel.kernel == metal::Kernel::linear || what.kernel.kernel == metal::Kernel::linear_few ||
        what.kernel.kernel == metal::Kernel::linear_many) {
      if (mistake_ == Mistake::one_group_less && what.groups.x > 1) --changed.groups.x;
      if (mistake_ == Mistake::one_tile_of_tokens_less && what.groups.y > 1) --changed.groups.y;
      auto* fields = reinterpret_cast<metal::LinearArgs*>(args.data());
      if (mistake_ == Mistake::wrong_args_field) --fields->weight.groups;
      if (mistake_ == Mistake::one_token_less) --fields->tokens;
      if (mistake_ == Mistake::one_token_more) ++fields->tokens;
      if (mistake_ == Mistake::one_row_less) --fields->weight.rows;
      if (mistake_ == Mistake::one_row_more) ++fields->weight.rows;
    }
    changed.args = args;
    changed.buffers = buffers;
    device_.dispatch(changed);
  }
  void barrier() override {
    if (mistake_ != Mistake::no_barriers) device_.barrier();
  }
  void commit() override { device_.commit(); }
  void wait() override { device_.wait(); }
  [[nodiscard]] double last_seconds() const override { return device_.last_seconds(); }

 private:
  void release(void* data) noexcept override { device_.free(data); }

  test::EmulatedDevice device_;
  Mistake mistake_;
};

// Whether the MLP's result is within the limit that parity tests have.
bool passes_with(Mistake mistake, int64_t tokens = 1) {
  const OpImage image =
      mlp_case({.tokens = tokens, .width = 64, .ffn = 96, .weight = DType::q8_0, .down = DType::q8_0}, 1);
  metal::MetalBackend backend(std::make_unique<FaultyDevice>(mistake));
  const auto scalar = create_backend("scalar", {.fused = false});
  const double limit = nmse_limit(image.record(), Numerics::definition);
  const std::vector<FieldDifference> found = compare_written(image, run_on(*scalar, image), run_on(backend, image));
  return std::none_of(found.begin(), found.end(), [&](const FieldDifference& d) { return d.beyond(limit); });
}

// One, a few, and tiles of which the last has one token.
constexpr int64_t kTokens[] = {1, 2, 33};

TEST(MetalMistakes, NoMistakePasses) {
  for (const int64_t tokens : kTokens) EXPECT_TRUE(passes_with(Mistake::none, tokens));
}
TEST(MetalMistakes, MissingBarriersAreNoticed) {
  EXPECT_FALSE(passes_with(Mistake::no_barriers));
}
TEST(MetalMistakes, AWrongBufferIndexIsNoticed) {
  EXPECT_FALSE(passes_with(Mistake::swapped_buffers));
}
TEST(MetalMistakes, AWrongArgsFieldIsNoticed) {
  for (const int64_t tokens : kTokens) EXPECT_FALSE(passes_with(Mistake::wrong_args_field, tokens));
}
TEST(MetalMistakes, AnEdgeThatNoThreadgroupCoversIsNoticed) {
  for (const int64_t tokens : kTokens) EXPECT_FALSE(passes_with(Mistake::one_group_less, tokens));
  EXPECT_FALSE(passes_with(Mistake::one_tile_of_tokens_less, 33));
}
// The kernels compare with these numbers to find where their last tile ends; with one token it is full.
TEST(MetalMistakes, AnEdgeTileThatEndsOneTooEarlyIsNoticed) {
  for (const int64_t tokens : {2, 33}) {
    EXPECT_FALSE(passes_with(Mistake::one_token_less, tokens));
    EXPECT_FALSE(passes_with(Mistake::one_row_less, tokens));
  }
}
#if INFERNO_ADDRESS_SANITIZER
TEST(MetalMistakesDeathTest, AnEdgeTileThatEndsOneTooLateIsNoticed) {
  for (const int64_t tokens : {2, 33}) {
    EXPECT_DEATH((void)passes_with(Mistake::one_token_more, tokens), "heap-buffer-overflow");
    EXPECT_DEATH((void)passes_with(Mistake::one_row_more, tokens), "heap-buffer-overflow");
  }
}
#endif

// The kernels are the shipped ones; the emulator lets their threads run past a barrier.
TEST(MetalMistakesDeathTest, ABarrierThatAKernelLacksIsNoticed) {
  const OpImage many = linear_case({.tokens = 33, .k = 64, .n = {70}}, 1);
  const OpImage plain = op_cases(OpId::matmul).back().image.clone();
  const OpImage tiles = attention_case({.sequences = {{.cached = 40, .queries = 9}}, .q_heads = 2, .kv_heads = 1}, 7);
  const OpImage wide = attention_case({.sequences = {{.cached = 40, .queries = 2}}, .head_dim = 288}, 7);
  const std::vector<OpCase> norms = op_cases(OpId::layer_norm);  // which own their weights
  const OpImage states = delta_net_case({.sequences = {{.cached = 3, .queries = 2}}, .head_dim = 64}, 7);
  const OpImage experts = moe_case({.tokens = 3, .experts_norm = true}, 7);
  const auto scalar = create_backend("scalar", {.fused = false});
  const auto passes = [&](const OpImage& image, metal::Kernel kernel) {
    auto device = std::make_unique<test::EmulatedDevice>();
    // Before attention's first there is nothing that others read.
    device->skip_barrier_of(kernel, kernel == metal::Kernel::attention_tiles ? 1 : 0);
    metal::MetalBackend backend(std::move(device));
    const double limit = nmse_limit(image.record(), Numerics::definition);
    const std::vector<FieldDifference> found = compare_written(image, run_on(*scalar, image), run_on(backend, image));
    return std::none_of(found.begin(), found.end(), [&](const FieldDifference& d) { return d.beyond(limit); });
  };
  for (const auto& [image, kernel] : {std::pair{&many, metal::Kernel::linear_many},
                                      {&plain, metal::Kernel::matmul},
                                      {&tiles, metal::Kernel::attention_tiles},
                                      {&wide, metal::Kernel::attention_part_wide},
                                      {&norms[1].image, metal::Kernel::layer_norm},
                                      {&states, metal::Kernel::gated_norm},
                                      {&experts, metal::Kernel::expert_sum}}) {
    SCOPED_TRACE(metal::KernelId{kernel}.name());
    EXPECT_TRUE(passes(*image, metal::Kernel::count));
#if INFERNO_THREAD_SANITIZER
    EXPECT_DEATH((void)passes(*image, kernel), "data race");
#else
    EXPECT_FALSE(passes(*image, kernel));
#endif
  }
}

TEST(MetalBackend, AStepsResultIsThereAfterSynchronizing) {
  metal::MetalBackend backend(std::make_unique<test::EmulatedDevice>());
  const OpImage image = linear_case({.tokens = 1, .k = 64, .n = {32}}, 1);
  WeightCopies weights(backend);
  PlacedOp placed(image, backend, weights);
  placed.run();
  OpImage tested = image.clone();
  placed.download(tested);
  const auto scalar = create_backend("scalar", {.fused = false});
  for (const FieldDifference& d : compare_written(image, run_on(*scalar, image), tested)) EXPECT_LT(d.nmse, 1e-10);
}

// ---- steps

OpImage small_mlp(uint32_t seed) {
  return mlp_case({.tokens = 1, .width = 64, .ffn = 96}, seed);
}
// What the op left in the backend's memory is what its definition gives.
void expect_right(const PlacedOp& placed, const OpImage& image) {
  OpImage tested = image.clone();
  placed.download(tested);
  const auto scalar = create_backend("scalar", {.fused = false});
  const double limit = nmse_limit(image.record(), Numerics::definition);
  for (const FieldDifference& d : compare_written(image, run_on(*scalar, image), tested)) {
    EXPECT_FALSE(d.beyond(limit)) << d.field;
  }
}

TEST(MetalSteps, AStepThatRepeatsHasTheSameCommandsAndReadsWhatIsThereNow) {
  auto device = std::make_unique<test::EmulatedDevice>();
  const test::EmulatedDevice& counter = *device;
  metal::MetalBackend backend(std::move(device));
  const OpImage image = small_mlp(1);
  WeightCopies weights(backend);
  PlacedOp placed(image, backend, weights);
  for (int64_t step = 1; step <= 3; ++step) {
    placed.run();
    expect_right(placed, image);
    EXPECT_EQ(counter.dispatches(), 5 * step);
    EXPECT_EQ(counter.barriers(), 3 * step);
    placed.reset();  // the residual, which a step replaces by its result
  }
}

TEST(MetalSteps, StepsMayAlternate) {
  metal::MetalBackend backend(std::make_unique<test::EmulatedDevice>());
  const OpImage images[] = {small_mlp(1), linear_case({.tokens = 2, .k = 64, .n = {32}}, 2)};
  WeightCopies weights(backend);
  PlacedOp placed[] = {{images[0], backend, weights}, {images[1], backend, weights}};
  for (const int which : {0, 1, 1, 0, 0}) {
    placed[which].reset();
    placed[which].run();
    expect_right(placed[which], images[which]);
  }
}

// Keeps what is freed, and notices a kernel that uses it.
class KeepingDevice final : public test::EmulatedDevice {
 public:
  void dispatch(const metal::Dispatch& what) override {
    for (const metal::Binding& b : what.buffers) EXPECT_EQ(freed_.count(b.data), 0U) << what.kernel.name();
    EmulatedDevice::dispatch(what);
  }

 private:
  void release(void* data) noexcept override { freed_.insert(data); }

  std::set<const void*> freed_;
};

void record(metal::MetalBackend& backend, StepMode mode, std::initializer_list<const PlacedOp*> ops) {
  backend.begin_step(mode);
  for (const PlacedOp* op : ops) {
    for (const OpRecord& record : op->records()) call_op(backend, record);
  }
  backend.end_step();
  backend.synchronize();
}

// Ops that another backend placed: this one has planned none of them.
class MetalScratch : public testing::Test {
 protected:
  void expect_both_right() {
    expect_right(small_, small_image_);
    expect_right(large_, large_image_);
    small_.reset();
    large_.reset();
  }

  metal::MetalBackend placed_with_{std::make_unique<test::EmulatedDevice>()};
  WeightCopies weights_{placed_with_};
  OpImage small_image_ = small_mlp(1);
  OpImage large_image_ = mlp_case({.tokens = 3, .width = 128, .ffn = 192}, 2);
  PlacedOp small_{small_image_, placed_with_, weights_};
  PlacedOp large_{large_image_, placed_with_, weights_};
  metal::MetalBackend backend_{std::make_unique<KeepingDevice>()};
};

TEST_F(MetalScratch, MayGrowWithinAStep) {
  for (int step = 0; step < 3; ++step) {
    record(backend_, StepMode::run, {&small_, &large_});
    expect_both_right();
  }
}

TEST_F(MetalScratch, CommandsThatUseWhatWasFreedAreMadeAnew) {
  record(backend_, StepMode::run, {&small_});
  small_.reset();
  record(backend_, StepMode::plan, {&large_});  // a larger region instead of the small one
  record(backend_, StepMode::run, {&small_});
  record(backend_, StepMode::run, {&large_});
  expect_both_right();
}

TEST(MetalSteps, TimesAreOfEachOp) {
  metal::MetalBackend backend(std::make_unique<test::EmulatedDevice>());
  const OpImage image = small_mlp(1);
  WeightCopies weights(backend);
  PlacedOp placed(image, backend, weights);
  placed.run();
  placed.reset();
  backend.set_timing(true);
  placed.run();
  expect_right(placed, image);
  ASSERT_NE(backend.step_times(), nullptr);
  EXPECT_EQ(backend.step_times()->ops.size(), 1U);
  backend.set_timing(false);
  placed.reset();
  placed.run();
  expect_right(placed, image);
}

TEST(MetalBackend, TheHostSeesItsMemoryAndItsResultsAreADevices) {
  const metal::MetalBackend backend(std::make_unique<test::EmulatedDevice>());
  EXPECT_TRUE(backend.host_visible());
  EXPECT_FALSE(backend.cpu_numerics());
}

TEST(MetalBackend, RowsFromWhichAProductIsSentThereAreANumber) {
  const metal::MetalBackend backend(std::make_unique<test::EmulatedDevice>());
  EXPECT_EQ(backend.min_offload_rows(), 32);
  setenv("INFERNO_METAL_MIN_ROWS", "5", 1);
  EXPECT_EQ(backend.min_offload_rows(), 5);
  for (const char* wrong : {"0", "many", "-3", "99999999999"}) {
    setenv("INFERNO_METAL_MIN_ROWS", wrong, 1);
    EXPECT_THROW((void)backend.min_offload_rows(), Error) << wrong;
  }
  unsetenv("INFERNO_METAL_MIN_ROWS");
}

// `parallel,linear=metal`: products alone, from a number of rows on.
TEST(MetalBackend, ProductsOfEnoughRowsAreSentThereAndOthersStay) {
  setenv("INFERNO_METAL_MIN_ROWS", "3", 1);
  const auto scalar = create_backend("scalar", {.fused = false});
  for (const int64_t rows : {2, 3}) {
    auto device = std::make_unique<test::EmulatedDevice>();
    const test::EmulatedDevice& counter = *device;
    std::map<std::string, std::unique_ptr<Backend>> others;
    others.emplace("metal", std::make_unique<metal::MetalBackend>(std::move(device)));
    PlacementBackend backend(create_backend("simd"), parse_placement("simd,linear=metal"), std::move(others));
    const OpImage image = linear_case({.tokens = rows, .k = 64, .n = {32}}, 1);
    const OpImage tested = run_on(backend, image);
    EXPECT_EQ(counter.dispatches(), rows < 3 ? 0 : 1);
    for (const FieldDifference& d : compare_written(image, run_on(*scalar, image), tested)) EXPECT_LT(d.nmse, 1e-6);
  }
  unsetenv("INFERNO_METAL_MIN_ROWS");
}

// `metal,attention=simd`: the CPU reads and writes Metal's memory.
TEST(MetalBackend, TheCpuTakesAnOpInTheSameMemory) {
  const auto scalar = create_backend("scalar", {.fused = false});
  std::map<std::string, std::unique_ptr<Backend>> others;
  others.emplace("simd", create_backend("simd"));
  PlacementBackend backend(std::make_unique<metal::MetalBackend>(std::make_unique<test::EmulatedDevice>()),
                           parse_placement("metal,attention=simd"), std::move(others));
  const OpImage image = attention_block_case(
      {.attention = {.sequences = {{.cached = 5, .queries = 3}}, .q_heads = 4, .kv_heads = 2}, .width = 64}, true, 1);
  const OpImage tested = run_on(backend, image);
  for (const FieldDifference& d : compare_written(image, run_on(*scalar, image), tested)) {
    EXPECT_LT(d.nmse, 1e-4) << d.field;
  }
}

TEST(MetalBackend, MemoryItMayUseIsANumberOfMebibytes) {
  metal::MetalBackend backend(std::make_unique<test::EmulatedDevice>());
  setenv("INFERNO_METAL_MEMORY", "64", 1);
  EXPECT_EQ(backend.free_memory(), uint64_t{64} << 20);
  setenv("INFERNO_METAL_MEMORY", "much", 1);
  EXPECT_THROW((void)backend.free_memory(), Error);
  unsetenv("INFERNO_METAL_MEMORY");
  EXPECT_EQ(backend.free_memory(), uint64_t{1} << 32);
}

}  // namespace
}  // namespace inferno
