// Ops as kernels: which an op is made of, their grids and scratch memory, and where the GPU has to wait.
//
// A kernel waits only where it touches memory that another wrote, or writes what another reads, since the last barrier;
// so the projections of q, k and v run side by side. One token, up to eight and more have kernels of their
// own.
#pragma once

#include <vector>

#include "backend/device/workspace.h"
#include "backend/metal/command_list.h"
#include "backend/metal/device.h"
#include "backend/metal/kernels/args.h"
#include "backend/metal/metal_weight.h"
#include "backend/plan.h"

namespace inferno::metal {

// Heads of up to this many elements: what attention_decode.metal has room for.
inline constexpr int32_t kMaxHeadDim = 256;

class OpEncoder {
 public:
  explicit OpEncoder(Device& device);
  ~OpEncoder();
  OpEncoder(const OpEncoder&) = delete;
  OpEncoder& operator=(const OpEncoder&) = delete;

  // Makes the op's kernels ready and allocates its scratch memory.
  void reserve(const OpRecord& record);
  // Commands of ops from here on: those before are forgotten, and have been committed wherever what follows depends on
  // them.
  void begin() {
    commands_.clear();
    touched_.clear();
  }
  // Adds the op's commands. False: it has no kernels.
  [[nodiscard]] bool encode(const OpRecord& record);
  // Gives the commands since begin() to the device, whenever it is called.
  void submit() const { commands_.give(device_); }

 private:
  // Scratch memory by purpose; it only grows.
  enum class Region : uint8_t { normed, first, second, third, product, partials, sampling, count };

  struct Memory {
    std::byte* data = nullptr;
    size_t size = 0;
    [[nodiscard]] size_t bytes() const { return size; }
  };
  struct Projection {  // what a linear does to its product
    const Weight* bias = nullptr;
    const Weight* post_norm = nullptr;
    float eps = 0;
    float residual_scale = 1;
    Tensor residual;
    Tensor rows;
  };

  [[nodiscard]] Binding floats(Region region, int64_t count);
  template <typename Args>
  void dispatch(KernelId kernel, GridSize groups, uint32_t threads, const Args& args,
                std::initializer_list<Binding> buffers);
  // Notes what a kernel touches; whether it has to wait for those before it.
  [[nodiscard]] bool order(std::span<const Binding> buffers);

  void norm(Binding x, const Weight* weight, int64_t rows, int64_t cols, float eps, Binding out);
  // The rows of x, normed where there is a norm.
  [[nodiscard]] Binding input_of(const Tensor& x, const Weight* weight, float eps);
  void activate(Activation activation, Binding x, Binding factor, int64_t count, Binding out);
  void finish(Binding x, Binding residual, float scale, float softcap, int64_t count, Binding out);
  void multiply(const Weight& weight, Binding x, int64_t tokens, const Weight* bias, Binding residual,
                const Tensor& rows, Binding out);
  void project(const Weight& weight, Binding x, int64_t tokens, const Projection& how, Binding out);
  void rope_store(const RopeStoreArgs& args, DType type, int64_t tokens, std::initializer_list<Binding> buffers);

  bool op(const inferno::EmbedArgs& a);
  bool op(const inferno::RmsNormArgs& a);
  bool op(const inferno::ActivateArgs& a);
  bool op(const inferno::LinearArgs& a);
  bool op(const KvStoreArgs& a);
  bool op(const QkvRopeStoreArgs& a);
  bool op(const inferno::AttentionArgs& a);
  bool op(const GatedMlpArgs& a);
  bool op(const LogitsArgs& a);
  bool op(const inferno::MatmulArgs& a);
  bool op(const inferno::SampleArgs& a);
  template <typename Args>
  bool op(const Args& /*a*/) {
    return false;
  }

  Device& device_;
  device::Workspace<Region, Memory> regions_;
  bool planning_ = false;
  CommandList commands_;
  std::vector<Binding> touched_;  // by kernels since the last barrier
};

}  // namespace inferno::metal
