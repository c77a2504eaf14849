// What the backend asks of an Apple GPU. One class implements it with Metal (apple_device.cpp), one in the tests with
// an emulator: everything above runs, unchanged, on both.
//
// Memory is shared between the CPU and the GPU. Dispatches are encoded into the command buffer that is open, run after
// commit, and are concurrent with each other except across barrier(). Not thread-safe. Failures are Errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace inferno::metal {

// The functions of kernels/*.metal. Some exist once for each type of weights or of the cache.
enum class Kernel : uint8_t {
  linear,
  linear_few,
  linear_many,
  linear_pair,
  linear_pairs,
  embed,
  rms_norm,
  layer_norm,
  gated_norm,
  add,
  activate,
  finish,
  rope_store,
  rotate_ends,
  attention_part,
  attention_part_wide,
  attention_merge,
  attention_tiles,
  route,
  sort_pairs,
  expert_sum,
  short_conv,
  delta_net,
  mamba2,
  matmul,
  sample_scan,
  sample_draw,
  count
};
// Function constants by index, as bits: a pipeline is compiled for each combination that occurs.
enum FunctionConstant : uint8_t { kCausal = 1, kHasWindow = 2, kHasSoftcap = 4 };
inline constexpr size_t kFunctionConstants = 3;
struct KernelId {
  Kernel kernel = Kernel::count;
  DType dtype = DType::i32;  // i32: it has no types
  uint8_t constants = 0;     // those that are true

  [[nodiscard]] size_t index() const {
    return ((static_cast<size_t>(kernel) * kDTypeCount + static_cast<size_t>(dtype)) << kFunctionConstants) + constants;
  }
  [[nodiscard]] std::string name() const;  // "linear_q4_k"
  // Whether the kernel has function constants: all of them.
  [[nodiscard]] bool has_constants() const {
    return kernel == Kernel::attention_part || kernel == Kernel::attention_part_wide ||
           kernel == Kernel::attention_tiles;
  }
};
inline constexpr size_t kKernelIds = static_cast<size_t>(Kernel::count) * kDTypeCount << kFunctionConstants;

struct GridSize {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

// Memory that a kernel reads or writes; none: an argument that it does not look at.
struct Binding {
  const void* data = nullptr;
  int64_t bytes = 0;
  bool written = false;
};

struct Dispatch {
  KernelId kernel;
  GridSize groups;                   // threadgroups in the grid
  uint32_t threads;                  // in each
  std::span<const std::byte> args;   // buffer 0
  std::span<const Binding> buffers;  // 1, 2, ...
};

class Device {
 public:
  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual uint64_t free_memory() const = 0;

  // Zeroed, at a multiple of 16 bytes: whole pages of the cache are read beyond a sequence's end.
  [[nodiscard]] virtual std::byte* allocate(size_t bytes) = 0;
  // Nothing that uses it may be encoded or running.
  void free(void* data) noexcept {
    ++frees_;
    release(data);
  }
  // How often that was: commands that were made before may name memory that is no more.
  [[nodiscard]] uint64_t frees() const { return frees_; }

  // Makes the kernel ready, so that dispatching it allocates nothing.
  virtual void prepare(const KernelId& kernel) = 0;
  virtual void dispatch(const Dispatch& what) = 0;
  // What follows sees what came before.
  virtual void barrier() = 0;
  virtual void commit() = 0;
  // Commits, and waits for everything.
  virtual void wait() = 0;
  // Seconds the GPU spent on what was committed last; after wait().
  [[nodiscard]] virtual double last_seconds() const = 0;

 private:
  virtual void release(void* data) noexcept = 0;

  uint64_t frees_ = 0;
};

// The system's default GPU. Without one, or without what the kernels need of it: an Error in one line.
[[nodiscard]] std::unique_ptr<Device> make_apple_device();

// The text of all kernels as one source.
[[nodiscard]] std::string_view kernel_source();

}  // namespace inferno::metal
