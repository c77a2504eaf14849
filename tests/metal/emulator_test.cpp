// The emulator itself: what it computes, and that each kind of fault (faults.metal) is an error.
#include "emulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "address_sanitizer.h"
#include "base/thread_sanitizer.h"

namespace emulator {
namespace {

std::vector<float> run(const std::string& kernel, uint32_t threads, Order order = Order::forward) {
  std::vector<float> out(threads);
  dispatch({.kernel = kernel, .groups = {1}, .threads = {threads}, .order = order}, {{0, out.data()}});
  return out;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST(MetalEmulator, SimdSumsAreOfTheLanesThatExist) {
  const std::vector<float> out = run("sum_of_lanes", 40);
  EXPECT_EQ(out[0], 31 * 32 / 2);
  EXPECT_EQ(out[31], 31 * 32 / 2);
  EXPECT_EQ(out[32], 32 + 33 + 34 + 35 + 36 + 37 + 38 + 39);
}

TEST(MetalEmulator, BarriersOrderThreadgroupMemoryInEveryOrder) {
  for (const Order order : {Order::forward, Order::reverse, Order::shuffled}) {
    const std::vector<float> out = run("mirror", 64, order);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], static_cast<float>(63 - i));
  }
}

TEST(MetalEmulator, MatricesAreLoadedMultipliedAndStoredByAllLanesTogether) {
  for (const Order order : {Order::forward, Order::reverse, Order::shuffled}) {
    std::vector<float> out(64);
    dispatch({.kernel = "twice_transposed", .groups = {1}, .threads = {32}, .order = order}, {{0, out.data()}});
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], 2.0F * static_cast<float>(i % 8 * 8 + i / 8));
  }
}

#if INFERNO_THREAD_SANITIZER
TEST(MetalEmulatorDeathTest, AMissingBarrierIsADataRace) {
  EXPECT_DEATH(run("fault_missing_barrier", 64), "data race");
  EXPECT_DEATH(run("fault_matrix_without_barrier", 32), "data race");
}
#else
TEST(MetalEmulator, AMissingBarrierReadsNaN) {
  const std::vector<float> out = run("fault_missing_barrier", 64);
  EXPECT_TRUE(std::any_of(out.begin(), out.end(), [](float value) { return std::isnan(value); }));
  EXPECT_TRUE(std::isnan(run("fault_matrix_without_barrier", 32)[0]));
}
#endif

TEST(MetalEmulator, LanesAtDifferentSimdOperationsAreAnError) {
  for (const char* kernel : {"fault_divergence", "fault_matrix_divergence"}) {
    EXPECT_NE(error_of([&] { run(kernel, 32); }).find("different simd operations"), std::string::npos) << kernel;
  }
}

TEST(MetalEmulator, ABarrierThatNotAllReachIsAnError) {
  for (const Order order : {Order::forward, Order::reverse}) {
    EXPECT_NE(error_of([&] { run("fault_return_before_barrier", 8, order); }).find("barrier"), std::string::npos);
  }
}

TEST(MetalEmulator, LimitsOfTheDeviceAreErrors) {
  EXPECT_NE(error_of([] { run("fault_too_much_memory", 8); }).find("32 KiB"), std::string::npos);
  EXPECT_NE(error_of([] { run("mirror", 1025); }).find("1025 threads"), std::string::npos);
}

TEST(MetalEmulator, ABufferThatIsNotBoundIsAnErrorWithItsNumber) {
  EXPECT_NE(error_of([] { dispatch({.kernel = "mirror", .groups = {1}, .threads = {8}}, {}); }).find("buffer 0"),
            std::string::npos);
  EXPECT_NE(error_of([] { run("no_such_kernel", 8); }).find("no such kernel"), std::string::npos);
}

#if INFERNO_ADDRESS_SANITIZER
TEST(MetalEmulatorDeathTest, WritingBeyondABufferIsReported) {
  EXPECT_DEATH(run("fault_beyond_edge", 8), "heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace emulator
