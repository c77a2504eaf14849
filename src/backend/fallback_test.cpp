#include "backend/fallback.h"

#include <gtest/gtest.h>

#include "backend/factory.h"
#include "backend/tracing.h"

namespace inferno {
namespace {

// A scalar backend that behaves as a device: its memory is small, and hidden unless it is said to be shared. It counts
// copies in steps.
class SmallDevice final : public BackendDecorator {
 public:
  SmallDevice(std::unique_ptr<Backend> inner, uint64_t free, bool shared, int* copies)
      : BackendDecorator(std::move(inner)), free_(free), shared_(shared), copies_(copies) {}
  [[nodiscard]] bool host_visible() const override { return shared_; }
  void begin_step(StepMode mode) override {
    in_step_ = true;
    BackendDecorator::begin_step(mode);
  }
  void end_step() override {
    in_step_ = false;
    BackendDecorator::end_step();
  }
  void upload(void* destination, const void* host, size_t bytes) override {
    *copies_ += in_step_ ? 1 : 0;
    BackendDecorator::upload(destination, host, bytes);
  }
  void download(void* host, const void* source, size_t bytes) override {
    *copies_ += in_step_ ? 1 : 0;
    BackendDecorator::download(host, source, bytes);
  }
  [[nodiscard]] bool cpu_numerics() const override { return false; }
  [[nodiscard]] std::optional<uint64_t> free_memory() const override { return free_; }

 private:
  uint64_t free_;
  bool shared_;
  int* copies_;
  bool in_step_ = false;
};

int copies_in_steps = 0;

FallbackBackend with_memory(uint64_t free, bool shared = false) {
  copies_in_steps = 0;
  return {std::make_unique<SmallDevice>(create_backend("scalar"), free, shared, &copies_in_steps),
          [] { return create_backend("simd"); }};
}

constexpr uint64_t kLayer = 1 << 20;
const ModelNeeds kNeeds{.layer_bytes = {kLayer, kLayer, kLayer, kLayer}, .other_bytes = kLayer};

TEST(Fallback, AModelThatFitsStaysOnTheDevice) {
  FallbackBackend backend = with_memory(6 * kLayer);
  backend.expect(kNeeds);
  EXPECT_FALSE(backend.fallback());
}

TEST(Fallback, TheLastLayersGoElsewhereAsFarAsNeeded) {
  FallbackBackend backend = with_memory(4 * kLayer);
  backend.expect(kNeeds);
  ASSERT_TRUE(backend.fallback());
  EXPECT_EQ(backend.fallback()->first, 2);  // two layers and the rest, each a little larger there than in the file
  EXPECT_EQ(backend.fallback()->backend, "simd");
  EXPECT_NE(backend.description().find("layers from 2 on"), std::string::npos);
}

TEST(Fallback, ADeviceWithoutRoomForAnyLayerKeepsTheRest) {
  FallbackBackend backend = with_memory(0);
  backend.expect(kNeeds);
  ASSERT_TRUE(backend.fallback());
  EXPECT_EQ(backend.fallback()->first, 0);
}

class Rows final : public WeightSource {
 public:
  Rows(std::string name, int32_t layer) : name_(std::move(name)), layer_(layer) {}
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] DType dtype() const override { return DType::f32; }
  [[nodiscard]] const Shape& shape() const override { return shape_; }
  [[nodiscard]] int32_t layer() const override { return layer_; }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    auto* values = reinterpret_cast<float*>(out.data());
    for (size_t i = 0; i < out.size() / sizeof(float); ++i) {
      values[i] = static_cast<float>((offset / sizeof(float) + i) % 7) * 0.25F - 0.5F;
    }
  }

 private:
  std::string name_;
  int32_t layer_;
  Shape shape_ = Shape(4, 4);
};

// x goes through one linear per layer, in place, as the residual stream does.
std::vector<float> run_layers(Backend& backend, int layers) {
  std::vector<std::unique_ptr<Weight>> weights;
  for (int i = 0; i < layers; ++i) {
    weights.push_back(backend.load_weight(Rows("w", i), WeightUse::matmul));
  }
  const auto head = backend.load_weight(Rows("head", kNoLayer), WeightUse::matmul);
  const Buffer memory = backend.allocate(4 * sizeof(float));
  const Buffer result = backend.allocate(4 * sizeof(float));
  const std::vector<float> start = {1, -2, 3, 0.5F};
  std::vector<float> out(4);
  for (const StepMode mode : {StepMode::plan, StepMode::run, StepMode::run}) {
    backend.upload(memory.data(), start.data(), start.size() * sizeof(float));
    backend.begin_step(mode);
    const Tensor x{memory.data(), Shape(1, 4)};
    for (const auto& w : weights) backend.linear({.x = x, .w = {w.get()}, .residual = x, .out = {x}});
    backend.linear({.x = x, .w = {head.get()}, .out = {Tensor{result.data(), Shape(1, 4)}}});
    backend.end_step();
    backend.download(out.data(), result.data(), out.size() * sizeof(float));
  }
  return out;
}

TEST(Fallback, AStepOverBothGivesWhatOneBackendGives) {
  const auto alone = create_backend("scalar");
  const std::vector<float> expected = run_layers(*alone, 4);
  for (const uint64_t free : {uint64_t{0}, 3 * kLayer, 4 * kLayer, 9 * kLayer}) {
    for (const bool shared : {false, true}) {
      FallbackBackend backend = with_memory(free, shared);
      backend.expect(kNeeds);
      EXPECT_EQ(run_layers(backend, 4), expected) << free << " bytes";
    }
  }
}

TEST(Fallback, NothingIsCopiedWhereTheHostSeesTheDevicesMemory) {
  for (const bool shared : {false, true}) {
    FallbackBackend backend = with_memory(4 * kLayer, shared);
    backend.expect(kNeeds);
    (void)run_layers(backend, 4);
    EXPECT_EQ(copies_in_steps, shared ? 0 : 4);  // two steps, there and back
  }
}

TEST(Fallback, CachesOfLayersElsewhereAreReachedThroughTheSameCalls) {
  FallbackBackend backend = with_memory(3 * kLayer);
  backend.expect(kNeeds);
  for (const int32_t layer : {0, 3}) {
    const Buffer cache = backend.allocate_cache(layer, 16);
    const std::array<int32_t, 4> written = {1, 2, 3, layer};
    std::array<int32_t, 4> read = {};
    backend.upload(cache.data(), written.data(), sizeof written);
    backend.download(read.data(), cache.data(), sizeof read);
    EXPECT_EQ(read, written);
    backend.copy_cache(layer, static_cast<std::byte*>(cache.data()) + 8, cache.data(), 8);
    backend.download(read.data(), cache.data(), sizeof read);
    EXPECT_EQ(read, (std::array<int32_t, 4>{1, 2, 1, 2}));
  }
}

}  // namespace
}  // namespace inferno
