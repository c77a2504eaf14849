// The fake Metal itself: each mistake of a program is a Fault with a name.
#include "fake_metal.h"

#include <gtest/gtest.h>

#include <Foundation/Foundation.hpp>
#include <Metal/Metal.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "backend/metal/device.h"
#include "backend/metal/kernels/args.h"

namespace inferno {
namespace {

std::string fault_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const fake::Fault& fault) {
    return fault.what();
  }
  return "no fault";
}

#define EXPECT_FAULT(call, words) \
  EXPECT_NE(fault_of([&] { call; }).find(words), std::string::npos) << fault_of([&] { call; })

// A program as a mistake finds it: a kernel is bound and about to be dispatched.
class FakeMetal : public testing::Test {
 protected:
  FakeMetal() {
    NS::Error* error = nullptr;
    const auto options = NS::TransferPtr(MTL::CompileOptions::alloc()->init());
    options->setFastMathEnabled(false);
    const std::string source(metal::kernel_source());
    library_ = NS::TransferPtr(
        device_->newLibrary(NS::String::string(source.c_str(), NS::UTF8StringEncoding), options.get(), &error));
    const auto function = NS::TransferPtr(library_->newFunction(NS::String::string("finish", NS::UTF8StringEncoding)));
    pipeline_ = NS::TransferPtr(device_->newComputePipelineState(function.get(), &error));
    queue_ = NS::TransferPtr(device_->newCommandQueue());
    buffer_ = NS::TransferPtr(device_->newBuffer(kCount * sizeof(float), MTL::ResourceStorageModeShared));
    for (size_t i = 0; i < kCount; ++i) values()[i] = 1;
    commands_ = queue_->commandBufferWithUnretainedReferences();
    encoder_ = commands_->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  }
  ~FakeMetal() override { pool_->release(); }

  // values *= 2
  void bind() {
    const metal::FinishArgs args{.count = kCount, .has_residual = 0, .scale = 2, .out_scale = 1, .softcap = 0};
    encoder_->setComputePipelineState(pipeline_.get());
    encoder_->setBytes(&args, sizeof args, 0);
    for (size_t i = 1; i <= 3; ++i) encoder_->setBuffer(buffer_.get(), 0, i);
  }
  void dispatch() { encoder_->dispatchThreadgroups(MTL::Size(1, 1, 1), MTL::Size(kCount, 1, 1)); }
  void finish() {
    encoder_->endEncoding();
    commands_->commit();
  }
  [[nodiscard]] float* values() const { return static_cast<float*>(buffer_->contents()); }

  static constexpr size_t kCount = 8;
  NS::AutoreleasePool* pool_ = NS::AutoreleasePool::alloc()->init();
  NS::SharedPtr<MTL::Device> device_ = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
  NS::SharedPtr<MTL::Library> library_;
  NS::SharedPtr<MTL::ComputePipelineState> pipeline_;
  NS::SharedPtr<MTL::CommandQueue> queue_;
  NS::SharedPtr<MTL::Buffer> buffer_;
  MTL::CommandBuffer* commands_ = nullptr;
  MTL::ComputeCommandEncoder* encoder_ = nullptr;
};

TEST_F(FakeMetal, RunsAKernelWhenItIsWaitedFor) {
  bind();
  dispatch();
  finish();
  EXPECT_EQ(values()[7], 1);
  commands_->waitUntilCompleted();
  EXPECT_EQ(values()[7], 2);
}

TEST_F(FakeMetal, AMissingBarrierShows) {
  const auto second = NS::TransferPtr(device_->newBuffer(kCount * sizeof(float), MTL::ResourceStorageModeShared));
  bind();
  encoder_->setBuffer(second.get(), 0, 3);  // second = 2 * values
  dispatch();
  bind();
  encoder_->setBuffer(second.get(), 0, 1);  // values = 2 * second
  dispatch();
  finish();
  commands_->waitUntilCompleted();
  EXPECT_TRUE(std::isnan(values()[0]));
}

TEST_F(FakeMetal, AnUnknownSelectorIsAFault) {
  EXPECT_FAULT((void)device_->maxThreadgroupMemoryLength(),
               "unknown selector: -[MTLDevice maxThreadgroupMemoryLength]");
  EXPECT_FAULT((void)commands_->logs(), "unknown selector: -[MTLCommandBuffer logs]");
}

TEST_F(FakeMetal, ABufferThatIsNotBoundIsAFault) {
  const metal::FinishArgs args{};
  encoder_->setComputePipelineState(pipeline_.get());
  encoder_->setBytes(&args, sizeof args, 0);
  encoder_->setBuffer(buffer_.get(), 0, 1);
  encoder_->setBuffer(buffer_.get(), 0, 4);  // a wrong index
  EXPECT_FAULT(dispatch(), "finish: buffer 2 is not bound");
}

TEST_F(FakeMetal, OffsetsOutsideOfABufferAreFaults) {
  EXPECT_FAULT(encoder_->setBuffer(buffer_.get(), kCount * sizeof(float), 1), "buffer 1: offset outside of the buffer");
  EXPECT_FAULT(encoder_->setBuffer(buffer_.get(), 2, 1), "not a multiple of 4");
  EXPECT_FAULT(encoder_->setBuffer(buffer_.get(), 0, 31), "buffer 31: a device has 31");
  EXPECT_FAULT(encoder_->setBuffer(nullptr, 0, 1), "buffer 1 is null");
}

TEST_F(FakeMetal, MoreThan4KiBOfBytesAreAFault) {
  const std::vector<char> bytes(4097);
  encoder_->setBytes(bytes.data(), 4096, 0);
  EXPECT_FAULT(encoder_->setBytes(bytes.data(), bytes.size(), 0), "setBytes: more than 4 KiB");
}

TEST_F(FakeMetal, EncodingAfterItsEndIsAFault) {
  bind();
  dispatch();
  encoder_->endEncoding();
  EXPECT_FAULT(dispatch(), "encoding after endEncoding");
  EXPECT_FAULT(encoder_->memoryBarrier(MTL::BarrierScopeBuffers), "encoding after endEncoding");
  EXPECT_FAULT(encoder_->endEncoding(), "encoding after endEncoding");
  commands_->commit();
  EXPECT_FAULT((void)commands_->computeCommandEncoder(MTL::DispatchTypeConcurrent), "encoding after commit");
}

TEST_F(FakeMetal, CommittingTwiceOrWithoutAnEndIsAFault) {
  bind();
  dispatch();
  EXPECT_FAULT(commands_->waitUntilCompleted(), "wait before commit");
  EXPECT_FAULT(commands_->commit(), "commit without endEncoding");
  EXPECT_FAULT((void)commands_->computeCommandEncoder(MTL::DispatchTypeConcurrent), "a second encoder");
  finish();
  EXPECT_FAULT(commands_->commit(), "double commit");
}

TEST_F(FakeMetal, UseAfterReleaseIsAFault) {
  MTL::Buffer* released = device_->newBuffer(16, MTL::ResourceStorageModeShared);
  released->release();
  EXPECT_FAULT((void)released->contents(), "use after release: -[MTLBuffer contents]");
  EXPECT_FAULT(encoder_->setBuffer(released, 0, 1), "use after release: buffer 1");
}

TEST_F(FakeMetal, ABufferReleasedBeforeItsCommandsRanIsAFault) {
  bind();
  dispatch();
  finish();
  buffer_.reset();
  EXPECT_FAULT(commands_->waitUntilCompleted(), "use after release: buffer 1 of finish, before its commands ran");
}

TEST_F(FakeMetal, ABufferOutsideOfTheResidencySetIsAFault) {
  NS::Error* error = nullptr;
  const auto how = NS::TransferPtr(MTL::ResidencySetDescriptor::alloc()->init());
  const auto set = NS::TransferPtr(device_->newResidencySet(how.get(), &error));
  queue_->addResidencySet(set.get());
  set->addAllocation(buffer_.get());  // and no commit
  bind();
  dispatch();
  finish();
  EXPECT_FAULT(commands_->waitUntilCompleted(), "buffer 1 of finish is not in the residency set");
}

TEST_F(FakeMetal, AKernelWithoutValuesForItsFunctionConstantsIsAFault) {
  NS::Error* error = nullptr;
  const auto function =
      NS::TransferPtr(library_->newFunction(NS::String::string("attention_part_f32", NS::UTF8StringEncoding)));
  const auto pipeline = NS::TransferPtr(device_->newComputePipelineState(function.get(), &error));
  metal::AttentionArgs args{};
  args.cache = {.k_row_bytes = 4, .v_row_bytes = 4, .page_size = 1, .kv_heads = 1, .head_dim = 1, .value_dim = 1};
  args.q_heads = args.max_pages = args.splits = args.tokens = 1;
  std::fill_n(reinterpret_cast<int32_t*>(values()), kCount, 0);
  values()[1] = 0;
  reinterpret_cast<int32_t*>(values())[2] = 1;  // positions that there are
  encoder_->setComputePipelineState(pipeline.get());
  encoder_->setBytes(&args, sizeof args, 0);
  for (size_t i = 1; i <= 8; ++i) encoder_->setBuffer(buffer_.get(), i == 6 ? 8 : 0, i);
  encoder_->dispatchThreadgroups(MTL::Size(1, 1, 1), MTL::Size(128, 1, 1));
  finish();
  EXPECT_THROW(commands_->waitUntilCompleted(), std::runtime_error);
}

TEST_F(FakeMetal, DispatchesThatAreNoneAreFaults) {
  EXPECT_FAULT(dispatch(), "dispatch without a pipeline");
  bind();
  EXPECT_FAULT(encoder_->dispatchThreadgroups(MTL::Size(1, 0, 1), MTL::Size(8, 1, 1)), "finish: an empty grid");
  EXPECT_FAULT(encoder_->dispatchThreadgroups(MTL::Size(1, 1, 1), MTL::Size(2048, 1, 1)), "too many threads");
}

TEST(FakeMetalPools, ObjectsOfNoPoolAreAFault) {
  EXPECT_FAULT((void)NS::String::string("x", NS::UTF8StringEncoding),
               "no autorelease pool around what makes a NSString");
}

}  // namespace
}  // namespace inferno
