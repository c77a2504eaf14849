// The seam: everything the model asks of a machine.
//
// A backend owns memory and weights and carries out ops. Between begin_step and end_step ops are recorded: their args
// are copied and run in order no later than end_step, download or synchronize; a backend may run them earlier. Outside
// a step an op runs at once. Nothing is allocated in a step: the model first records its largest step in
// StepMode::plan, in which the backend only adds up the scratch memory it will need.
//
// Op args name memory of the same backend (allocate) and weights it loaded. A backend is used by one thread at a time.
// Failures are Errors; those of an asynchronous device surface at synchronize, download or end_step with the op's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/op_args.h"
#include "tensor/tensor.h"

namespace inferno {

enum class OpId : uint8_t {
#define OP(name, Args) name,
#include "backend/op_list.inc"
  count
};
inline constexpr int kOpCount = static_cast<int>(OpId::count);
[[nodiscard]] std::string_view op_name(OpId op);
[[nodiscard]] std::optional<OpId> op_from_name(std::string_view name);
[[nodiscard]] bool is_fused(OpId op);

class Backend;
class OpRecord;
struct StepTimes;

// Memory of a backend; freed with the object. Contents start undefined.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Backend* owner, void* data, size_t bytes) : owner_(owner), data_(data), bytes_(bytes) {}
  ~Buffer();
  Buffer(Buffer&& other) noexcept
      : owner_(other.owner_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  Backend* owner_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

enum class StepMode : uint8_t { run, plan };

// What a model will take, before anything of it is loaded.
struct ModelNeeds {
  std::vector<uint64_t> layer_bytes;  // weights and cache of each layer
  uint64_t other_bytes = 0;           // the other weights, and a step's memory
};
// Layers that another backend keeps and runs: from `first` on.
struct FallbackLayers {
  int32_t first = 0;
  std::string backend;
};

// What a device can do at most, 10^9 per second.
struct DeviceRates {
  double read_gb = 0;
  double f32_gop = 0;
  double f16_gop = 0;
  double bf16_gop = 0;
  double quantized_gop = 0;
};

class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  [[nodiscard]] virtual std::string_view name() const = 0;
  // One line for people: kernels, threads, device.
  [[nodiscard]] virtual std::string description() const = 0;
  // The cache type when none is chosen.
  [[nodiscard]] virtual DType default_kv_dtype() const = 0;
  // Whether host code may read and write the backend's memory through its pointers, once what was recorded is done.
  [[nodiscard]] virtual bool host_visible() const = 0;
  // Whether ops run on the host's CPUs, in any memory that the host sees: with all primitives, so that default bodies
  // run, and with the bits that the contract promises there. Others are devices, which promise a tolerance.
  [[nodiscard]] virtual bool cpu_numerics() const = 0;
  // Of a device: products of fewer rows of activations are not worth the trip from a CPU backend and back.
  [[nodiscard]] virtual int64_t min_offload_rows() const { return 32; }
  // Threads that share an op.
  [[nodiscard]] virtual int workers() const { return 1; }
  // Whether this backend has its own kernel for the op with weights or cache of this type (else the default body runs).
  [[nodiscard]] virtual bool supports(OpId op, DType dtype) const = 0;
  // Whether it can run an op with these arguments (op_extras.h), by a kernel or by the default body. A model's first
  // step is planned while it is loaded; an op in it that is not supported is an Error then, never in a later step.
  [[nodiscard]] virtual bool supports(const OpRecord& /*op*/) const { return true; }

  // Whether the op multiplies quantized weights with activations in a floating type, where the contract has 8 bits.
  [[nodiscard]] virtual bool is_wide(const OpRecord& /*record*/) const { return false; }

  // Tokens of a step that keep the machine busy; longer prompts run in chunks.
  [[nodiscard]] virtual int32_t preferred_step_tokens() const { return 512; }
  // Products take as long for one token more than a multiple of this as for the next one.
  [[nodiscard]] virtual int32_t token_tile() const { return 16; }
  // Of a device with memory of its own: measured now, once; its memory that is free. Nothing: the host's count.
  [[nodiscard]] virtual std::optional<DeviceRates> device_rates() { return std::nullopt; }
  [[nodiscard]] virtual std::optional<uint64_t> free_memory() const { return std::nullopt; }

  // Of a backend made with ranks, called once by all of them before anything else: they agree on how they exchange.
  virtual void join_ranks() {}

  // ---- memory and weights
  // Told once, before a model is loaded: a backend with another one to fall back to decides what it keeps itself.
  virtual void expect(const ModelNeeds& /*needs*/) {}
  [[nodiscard]] virtual std::optional<FallbackLayers> fallback() const { return std::nullopt; }
  [[nodiscard]] virtual Buffer allocate(size_t bytes) = 0;
  // Memory for the cache of one layer, where that layer's ops run.
  [[nodiscard]] virtual Buffer allocate_cache(int32_t /*layer*/, size_t bytes) { return allocate(bytes); }
  // Copies part of a layer's cache within its memory, between steps and before the next one. Allocates nothing.
  virtual void copy_cache(int32_t layer, void* destination, const void* source, size_t bytes);
  virtual void upload(void* destination, const void* host, size_t bytes) = 0;
  virtual void download(void* host, const void* source, size_t bytes) = 0;
  [[nodiscard]] virtual std::unique_ptr<Weight> load_weight(const WeightSource& source, WeightUse uses) = 0;

  // ---- steps
  virtual void begin_step(StepMode mode) = 0;
  virtual void end_step() = 0;
  virtual void synchronize() = 0;
  // Scratch memory for the default body that runs now, valid until the next top-level op; only between begin_step and
  // end_step. In StepMode::plan the address must not be touched.
  [[nodiscard]] virtual void* scratch(size_t bytes) = 0;

  // Times of the last finished step's ops (step_times.h), valid until the next begin_step; null when there are none or
  // the backend keeps none.
  virtual void set_timing(bool /*on*/) {}
  [[nodiscard]] virtual const StepTimes* step_times() const { return nullptr; }

  // ---- ops: one virtual function each. Fused ops run their default body unless overridden; primitives throw.
#define OP(name, Args) virtual void name(const Args& args);
#include "backend/op_list.inc"

  // The backend whose ops default bodies call: this one, or the decorator around it.
  [[nodiscard]] Backend& outermost() { return *outermost_; }
  virtual void set_outermost(Backend& outer) { outermost_ = &outer; }

 protected:
  friend class Buffer;
  virtual void deallocate(void* data) noexcept = 0;

 private:
  Backend* outermost_ = this;
};

// Default bodies: each fused op in terms of primitives (and simpler fused ops). They are the ops' definitions.
namespace fused_defaults {
#define PRIMITIVE(name, Args)
#define FUSED(name, Args) void name(Backend& backend, const Args& args);
#include "backend/op_list.inc"
}  // namespace fused_defaults

// The op's args type -> its id, and calling an op by its args type.
template <typename Args>
struct OpOf;
#define OP(name, Args)                                     \
  template <>                                              \
  struct OpOf<Args> {                                      \
    static constexpr OpId kId = OpId::name;                \
    static void call(Backend& backend, const Args& args) { \
      backend.name(args);                                  \
    }                                                      \
  };
#include "backend/op_list.inc"

}  // namespace inferno
