// Device on Apple's Metal, through metal-cpp: C++ names for the messages to Objective-C objects.
//
// Ownership is metal-cpp's rule: what comes from a function called new..., alloc or retain is ours to release
// (SharedPtr does), everything else belongs to the autorelease pool around the call.
#include <fmt/core.h>

#include <Foundation/Foundation.hpp>
#include <Metal/Metal.hpp>
#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "backend/metal/device.h"
#include "backend/metal/metal.h"
#include "backend/metal/metal_backend.h"
#include "base/content_hash.h"
#include "base/error.h"
#include "base/text.h"

namespace inferno::metal {
namespace {

constexpr uint32_t kSimdWidth = 32;  // what the kernels are written for
constexpr size_t kMaxBuffers = 31;

class Pool {
 public:
  Pool() : pool_(NS::AutoreleasePool::alloc()->init()) {}
  ~Pool() { pool_->release(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  NS::AutoreleasePool* pool_;
};

NS::String* text(std::string_view words) {
  return NS::String::string(std::string(words).c_str(), NS::UTF8StringEncoding);
}

// The first line, which says what is wrong.
std::string reason(NS::Error* error) {
  if (error == nullptr) return "no reason given";
  const std::string words = error->localizedDescription()->utf8String();
  return printable(words.substr(0, words.find('\n')));
}

NS::SharedPtr<MTL::FunctionConstantValues> constants_of(const KernelId& kernel) {
  auto values = NS::TransferPtr(MTL::FunctionConstantValues::alloc()->init());
  for (size_t i = 0; i < kFunctionConstants; ++i) {
    const bool value = (kernel.constants >> i & 1) != 0;
    values->setConstantValue(&value, MTL::DataTypeBool, i);
  }
  return values;
}

// Whether the system knows a message: it may be older than the headers.
struct Messages : NS::Object {
  static bool knows(const NS::Object* object, const char* selector) {
    return respondsToSelector(object, sel_registerName(selector));
  }
};

// The newest of Apple's families that a GPU of family 7 or later is of. Families that these headers do not name yet are
// numbered on.
int family_of(MTL::Device& device) {
  constexpr int kNewest = 99;
  int family = 7;
  while (family < kNewest && device.supportsFamily(static_cast<MTL::GPUFamily>(MTL::GPUFamilyApple1 + family)))
    ++family;
  return family;
}

class AppleDevice final : public Device {
 public:
  AppleDevice();
  ~AppleDevice() override;
  AppleDevice(const AppleDevice&) = delete;
  AppleDevice& operator=(const AppleDevice&) = delete;

  [[nodiscard]] std::string description() const override { return description_; }
  [[nodiscard]] uint64_t free_memory() const override;
  [[nodiscard]] std::byte* allocate(size_t bytes) override;
  void prepare(const KernelId& kernel) override { (void)pipeline(kernel); }
  void dispatch(const Dispatch& what) override;
  void barrier() override;
  void commit() override;
  void wait() override;
  [[nodiscard]] double last_seconds() const override { return last_seconds_; }

 private:
  struct Place {
    MTL::Buffer* buffer = nullptr;
    size_t offset = 0;
  };
  void release(void* data) noexcept override;
  [[nodiscard]] Place find(const void* data, int64_t bytes) const;
  // Compiled when the first kernel is wanted.
  [[nodiscard]] MTL::Library& library();
  [[nodiscard]] MTL::ComputePipelineState* pipeline(const KernelId& kernel);
  void open();
  void make_residency_set();

  NS::SharedPtr<MTL::Device> device_;
  NS::SharedPtr<MTL::CommandQueue> queue_;
  // From macOS 15 on, or null: all buffers, which then stay where the GPU finds them also while nothing runs.
  NS::SharedPtr<MTL::ResidencySet> resident_;
  bool resident_grew_ = false;  // since its last commit
  NS::SharedPtr<MTL::Library> library_;
  std::array<NS::SharedPtr<MTL::ComputePipelineState>, kKernelIds> pipelines_;
  std::map<const std::byte*, NS::SharedPtr<MTL::Buffer>> buffers_;  // by where their memory begins
  NS::SharedPtr<MTL::Buffer> nothing_;                              // bound where an argument is left out
  NS::SharedPtr<MTL::CommandBuffer> commands_;                      // being encoded, or null
  NS::SharedPtr<MTL::ComputeCommandEncoder> encoder_;
  NS::SharedPtr<MTL::CommandBuffer> committed_;  // last, and not known to be done; or null
  double last_seconds_ = 0;
  std::string description_;
};

AppleDevice::AppleDevice() {
  const Pool pool;
  device_ = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
  if (!device_) fail("backend \"metal\" needs an Apple GPU, and found none; use `backend` parallel");
  const std::string name = printable(device_->name()->utf8String());
  if (!device_->supportsFamily(MTL::GPUFamilyApple7)) {
    fail(
        "backend \"metal\" needs a GPU of Apple silicon (family Apple 7, M1 or later), and {} is none; use `backend` "
        "parallel",
        name);
  }
  queue_ = NS::TransferPtr(device_->newCommandQueue());
  nothing_ = NS::TransferPtr(device_->newBuffer(16, MTL::ResourceStorageModeShared));
  if (!queue_ || !nothing_) fail("backend \"metal\": {} gives no command queue; use `backend` parallel", name);
  make_residency_set();
  description_ = fmt::format("{}, family Apple {}, {} for the GPU{}", name, family_of(*device_.get()),
                             format_bytes(device_->recommendedMaxWorkingSetSize()),
                             device_->hasUnifiedMemory() ? ", unified memory" : "");
}

AppleDevice::~AppleDevice() {
  const Pool pool;
  if (encoder_) encoder_->endEncoding();
  if (committed_) committed_->waitUntilCompleted();
}

void AppleDevice::make_residency_set() {
  if (!Messages::knows(device_.get(), "newResidencySetWithDescriptor:error:")) return;
  const auto how = NS::TransferPtr(MTL::ResidencySetDescriptor::alloc()->init());
  NS::Error* error = nullptr;
  resident_ = NS::TransferPtr(device_->newResidencySet(how.get(), &error));
  if (!resident_) return;  // then the system decides, as before macOS 15
  queue_->addResidencySet(resident_.get());
  resident_->addAllocation(nothing_.get());
  resident_grew_ = true;
}

uint64_t AppleDevice::free_memory() const {
  const uint64_t total = device_->recommendedMaxWorkingSetSize();
  const uint64_t used = device_->currentAllocatedSize();
  return total > used ? total - used : 0;
}

std::byte* AppleDevice::allocate(size_t bytes) {
  const size_t needed = std::max<size_t>(bytes, 16);
  auto buffer = NS::TransferPtr(device_->newBuffer(needed, MTL::ResourceStorageModeShared));
  if (!buffer) {
    fail(
        "out of GPU memory: {} more are needed, {} are free; use a smaller model or type, a smaller `context`, or "
        "`backend` parallel",
        format_bytes(needed), format_bytes(free_memory()));
  }
  auto* data = static_cast<std::byte*>(buffer->contents());
  std::memset(data, 0, needed);
  if (resident_) {
    resident_->addAllocation(buffer.get());
    resident_grew_ = true;
  }
  buffers_[data] = std::move(buffer);
  return data;
}

void AppleDevice::release(void* data) noexcept {
  const auto found = buffers_.find(static_cast<const std::byte*>(data));
  if (found == buffers_.end()) return;
  if (resident_) {  // it keeps what it has until it is committed
    resident_->removeAllocation(found->second.get());
    resident_->commit();
  }
  buffers_.erase(found);
}

AppleDevice::Place AppleDevice::find(const void* data, int64_t bytes) const {
  if (data == nullptr) return {nothing_.get(), 0};
  const auto* address = static_cast<const std::byte*>(data);
  auto found = buffers_.upper_bound(address);
  INFERNO_CHECK(found != buffers_.begin());
  --found;
  const auto offset = static_cast<size_t>(address - found->first);
  INFERNO_CHECK(offset + static_cast<size_t>(bytes) <= found->second->length());
  return {found->second.get(), offset};
}

MTL::Library& AppleDevice::library() {
  if (library_) return *library_.get();
  const Pool pool;
  const auto options = NS::TransferPtr(MTL::CompileOptions::alloc()->init());
  options->setLanguageVersion(MTL::LanguageVersion3_0);
  options->setFastMathEnabled(false);
  NS::Error* error = nullptr;
  library_ = NS::TransferPtr(device_->newLibrary(text(kernel_source()), options.get(), &error));
  if (!library_) {
    fail("backend \"metal\": this system's Metal does not compile the kernels ({}); use `backend` parallel",
         reason(error));
  }
  return *library_.get();
}

MTL::ComputePipelineState* AppleDevice::pipeline(const KernelId& kernel) {
  NS::SharedPtr<MTL::ComputePipelineState>& made = pipelines_[kernel.index()];
  if (made) return made.get();
  const Pool pool;
  const std::string name = kernel.name();
  NS::Error* error = nullptr;
  const auto function =
      NS::TransferPtr(kernel.has_constants() ? library().newFunction(text(name), constants_of(kernel).get(), &error)
                                             : library().newFunction(text(name)));
  if (!function) fail("backend \"metal\" has no kernel \"{}\"; choose another backend", name);
  auto state = NS::TransferPtr(device_->newComputePipelineState(function.get(), &error));
  if (!state) fail("backend \"metal\": kernel \"{}\" cannot be made ({}); use `backend` parallel", name, reason(error));
  if (state->threadExecutionWidth() != kSimdWidth) {
    fail("backend \"metal\" needs simdgroups of {} threads, this GPU's have {}; use `backend` parallel", kSimdWidth,
         state->threadExecutionWidth());
  }
  made = std::move(state);
  return made.get();
}

void AppleDevice::open() {
  if (commands_) return;
  const Pool pool;
  if (resident_grew_) {
    resident_->commit();
    resident_->requestResidency();
    resident_grew_ = false;
  }
  // Unretained: all that is bound stays until the commands are done (Device::free).
  commands_ = NS::RetainPtr(queue_->commandBufferWithUnretainedReferences());
  if (!commands_) fail("metal: the GPU takes no more commands");
  encoder_ = NS::RetainPtr(commands_->computeCommandEncoder(MTL::DispatchTypeConcurrent));
}

void AppleDevice::dispatch(const Dispatch& what) {
  MTL::ComputePipelineState* state = pipeline(what.kernel);
  if (what.threads > state->maxTotalThreadsPerThreadgroup()) {
    fail("metal: kernel \"{}\" can have {} threads in a threadgroup on this GPU, and needs {}; use `backend` parallel",
         what.kernel.name(), state->maxTotalThreadsPerThreadgroup(), what.threads);
  }
  INFERNO_CHECK(what.buffers.size() < kMaxBuffers);
  open();
  encoder_->setComputePipelineState(state);
  encoder_->setBytes(what.args.data(), what.args.size(), 0);
  for (size_t i = 0; i < what.buffers.size(); ++i) {
    const Place place = find(what.buffers[i].data, what.buffers[i].bytes);
    encoder_->setBuffer(place.buffer, place.offset, i + 1);
  }
  encoder_->dispatchThreadgroups(MTL::Size(what.groups.x, what.groups.y, what.groups.z), MTL::Size(what.threads, 1, 1));
}

void AppleDevice::barrier() {
  if (encoder_) encoder_->memoryBarrier(MTL::BarrierScopeBuffers);
}

void AppleDevice::commit() {
  if (!commands_) return;
  encoder_->endEncoding();
  commands_->commit();
  encoder_.reset();
  committed_ = std::move(commands_);
  commands_.reset();
}

void AppleDevice::wait() {
  commit();
  if (!committed_) return;
  const Pool pool;
  const NS::SharedPtr<MTL::CommandBuffer> done = std::move(committed_);
  committed_.reset();
  done->waitUntilCompleted();
  if (done->status() == MTL::CommandBufferStatusError) fail("metal: the GPU failed: {}", reason(done->error()));
  last_seconds_ = done->GPUEndTime() - done->GPUStartTime();
}

}  // namespace

std::unique_ptr<Device> make_apple_device() {
  return std::make_unique<AppleDevice>();
}

}  // namespace inferno::metal

namespace inferno {

std::string metal_kernels_id() {
  ContentHash hash;
  hash.add(metal::kernel_source());
  return fmt::format("{:016x}{:016x}", hash.value().high, hash.value().low);
}

std::unique_ptr<Backend> make_metal_backend() {
  return std::make_unique<metal::MetalBackend>(metal::make_apple_device());
}

}  // namespace inferno
