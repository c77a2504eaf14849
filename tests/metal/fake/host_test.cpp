// The host code of the Metal backend, as it is shipped, against a fake Metal: what it does wrong would be a Fault here.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <span>
#include <string>

#include "backend/factory.h"
#include "backend/metal/device.h"
#include "backend/metal/kernels/args.h"
#include "backend/metal/metal.h"
#include "base/error.h"
#include "fake_metal.h"
#include "verify/compare.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

// The next device, and what it was before.
class Next {
 public:
  Next() : before_(fake::next_device()) {}
  ~Next() { fake::next_device() = before_; }
  Next(const Next&) = delete;
  Next& operator=(const Next&) = delete;
  fake::DeviceKind* operator->() const { return &fake::next_device(); }

 private:
  fake::DeviceKind before_;
};

std::string refusal() {
  try {
    (void)create_backend("metal");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(MetalHost, SaysWhatItRunsOn) {
  const Next next;
  EXPECT_EQ(make_metal_backend()->description(), "Emulated GPU, family Apple 9, 8.0 GiB for the GPU, unified memory");
  next->family = 7;
  EXPECT_EQ(make_metal_backend()->description(), "Emulated GPU, family Apple 7, 8.0 GiB for the GPU, unified memory");
}

TEST(MetalHost, NoGpuIsOneLine) {
  const Next next;
  next->exists = false;
  EXPECT_EQ(refusal(), "backend \"metal\" needs an Apple GPU, and found none; use `backend` parallel");
}

TEST(MetalHost, AGpuOfAnotherFamilyIsOneLine) {
  const Next next;
  next->family = 6;
  EXPECT_EQ(refusal(),
            "backend \"metal\" needs a GPU of Apple silicon (family Apple 7, M1 or later), and Emulated GPU is none; "
            "use `backend` parallel");
}

// Kernels are compiled when the first is wanted.
std::string refusal_of_a_kernel() {
  try {
    metal::make_apple_device()->prepare({.kernel = metal::Kernel::rms_norm});
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(MetalHost, KernelsThatDoNotCompileAreOneLineWithTheReason) {
  const Next next;
  next->compiles = false;
  EXPECT_EQ(refusal_of_a_kernel(),
            "backend \"metal\": this system's Metal does not compile the kernels (program_source:7:1: error: expected "
            "';'); use `backend` parallel");
}

TEST(MetalHost, OtherSimdgroupsAreOneLine) {
  const Next next;
  next->simd_width = 64;
  EXPECT_EQ(refusal_of_a_kernel(),
            "backend \"metal\" needs simdgroups of 32 threads, this GPU's have 64; use `backend` parallel");
}

TEST(MetalHost, OutOfMemoryIsOneLine) {
  const Next next;
  next->memory = size_t{1} << 20;
  const auto backend = make_metal_backend();
  EXPECT_LT(*backend->free_memory(), uint64_t{1} << 20);
  try {
    (void)backend->allocate(size_t{2} << 20);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("out of GPU memory: 2.0 MiB more are needed, ", 0), 0U) << error.what();
  }
}

TEST(MetalHost, AGpuThatFailsIsAnErrorWithItsWords) {
  const Next next;
  next->fails = true;
  const auto backend = make_metal_backend();
  const OpImage image = linear_case({.tokens = 1, .k = 64, .n = {32}}, 1);
  try {
    (void)run_on(*backend, image);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "metal: the GPU failed: out of breath");
  }
}

TEST(MetalHost, EverythingItMadeIsReleasedWithIt) {
  const auto live = [] {
    std::map<std::string, int> counts;
    for (const char* kind :
         {"MTLDevice", "MTLCommandQueue", "MTLCommandBuffer", "MTLComputeCommandEncoder", "MTLBuffer", "MTLLibrary",
          "MTLFunction", "MTLComputePipelineState", "MTLCompileOptions", "MTLFunctionConstantValues", "MTLResidencySet",
          "MTLResidencySetDescriptor", "NSString", "NSAutoreleasePool"}) {
      counts[kind] = fake::live(kind);
    }
    return counts;
  };
  const std::map<std::string, int> before = live();
  {
    const auto backend = make_metal_backend();
    const OpImage image = mlp_case({.tokens = 2}, 1);
    (void)run_on(*backend, image);
    EXPECT_GT(fake::live("MTLBuffer"), before.at("MTLBuffer"));
  }
  EXPECT_EQ(live(), before);
}

// Where a system has residency sets the fake takes no buffer that is not in one.
TEST(MetalHost, ALayersOpsGiveWhatTheirDefinitionGivesWithAndWithoutResidencySets) {
  for (const bool residency : {false, true}) {
    const Next next;
    next->residency = residency;
    const auto backend = make_metal_backend();
    const auto scalar = create_backend("scalar", {.fused = false});
    const OpImage image =
        attention_block_case({.attention = {.sequences = {{.cached = 5, .queries = 3}}, .q_heads = 4, .kv_heads = 2},
                              .width = 256,
                              .weight = DType::q4_k},
                             true, 1);
    const OpImage tested = run_on(*backend, image);
    for (const FieldDifference& d : compare_written(image, run_on(*scalar, image), tested)) {
      EXPECT_LT(d.nmse, 1e-6) << d.field;
    }
    EXPECT_EQ(fake::live("MTLResidencySet"), residency ? 1 : 0);
  }
}

TEST(MetalHost, MemoryThatIsFreedIsNoLongerResidentAndWhatFollowsIs) {
  const auto device = metal::make_apple_device();
  std::byte* first = device->allocate(64);
  std::byte* second = device->allocate(64);
  device->free(first);
  const metal::FinishArgs args{.count = 1, .has_residual = 0, .scale = 2, .out_scale = 1, .softcap = 0};
  const std::array<metal::Binding, 3> buffers{
      metal::Binding{.data = second, .bytes = 64}, {}, {.data = second, .bytes = 64, .written = true}};
  *reinterpret_cast<float*>(second) = 3;
  device->dispatch({.kernel = {.kernel = metal::Kernel::finish},
                    .groups = {},
                    .threads = 32,
                    .args = std::as_bytes(std::span(&args, 1)),
                    .buffers = buffers});
  device->wait();
  EXPECT_EQ(*reinterpret_cast<float*>(second), 6);
}

}  // namespace
}  // namespace inferno
