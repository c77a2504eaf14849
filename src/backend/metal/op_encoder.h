// Ops as kernels: which an op is made of, their grids and scratch memory, and where the GPU has to wait.
//
// A kernel waits only where it touches memory that another wrote, or writes what another reads, since the last barrier;
// so the projections of q, k and v run side by side. One token, up to eight and more have kernels of their
// own. op_encoder.cpp has the ops of all families, family_ops.cpp, expert_ops.cpp and mixer_ops.cpp those of some.
#pragma once

#include <string>
#include <vector>

#include "backend/device/workspace.h"
#include "backend/metal/command_list.h"
#include "backend/metal/device.h"
#include "backend/metal/kernels/args.h"
#include "backend/metal/metal_weight.h"
#include "backend/plan.h"

namespace inferno::metal {

class OpEncoder {
 public:
  explicit OpEncoder(Device& device);
  ~OpEncoder();
  OpEncoder(const OpEncoder&) = delete;
  OpEncoder& operator=(const OpEncoder&) = delete;

  // There is one rank: nothing is exchanged.
  [[nodiscard]] static bool has_kernel(OpId op) {
    return op == OpId::kv_store || op == OpId::add || op == OpId::activate || op == OpId::matmul ||
           (is_fused(op) && op != OpId::all_gather && op != OpId::pass_on);
  }
  // What the kernels have no room for in an op with these arguments, for messages; empty: nothing.
  [[nodiscard]] static std::string lacks(const OpRecord& record);

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
  enum class Region : uint8_t { normed, first, second, third, product, partials, sampling, routing, experts, count };

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
    float out_scale = 1;
    Tensor residual;
    Tensor rows;
  };

  struct Rows {
    int64_t count = 0;
    int64_t cols = 0;
    int64_t stride = 0;  // elements between them; 0: cols
  };
  // Rows of x and of out, pair by pair (linear_pairs.metal), and how pairs were sorted by expert.
  struct PairRows {
    int64_t tokens = 0;
    int64_t slots = 0;
    const Weight* bias = nullptr;
    Binding x;
    int64_t x_token = 0;  // elements between tokens, and between slots
    int64_t x_slot = 0;
    Binding out;
    int64_t out_token = 0;
    int64_t out_slot = 0;
    Binding ids;  // none: a pair's matrix is its slot
    int64_t most_tiles = 0;
    Binding tile_count, tiles, pairs;  // with ids and several tokens
  };

  [[nodiscard]] Binding floats(Region region, int64_t count);
  template <typename Args>
  void dispatch(KernelId kernel, GridSize groups, uint32_t threads, const Args& args,
                std::initializer_list<Binding> buffers) {
    if (planning_) {
      device_.prepare(kernel);
      return;
    }
    const std::span<const Binding> bound(buffers.begin(), buffers.size());
    commands_.add({.kernel = kernel,
                   .groups = groups,
                   .threads = threads,
                   .args = std::as_bytes(std::span(&args, 1)),
                   .buffers = bound},
                  order(bound));
  }
  // Notes what a kernel touches; whether it has to wait for those before it.
  [[nodiscard]] bool order(std::span<const Binding> buffers);

  // Threads of a threadgroup that has a row.
  [[nodiscard]] static uint32_t row_threads(int64_t cols);
  // The stride is that of x and of out.
  void norm(Binding x, const Weight* weight, const Rows& rows, float eps, Binding out);
  void gated_norm(Binding x, Binding z, const Weight& weight, int64_t rows, const GatedNormArgs& how);
  // The rows of x, normed where there is a norm.
  [[nodiscard]] Binding input_of(const Tensor& x, const Weight* weight, float eps, Region region = Region::normed);
  // The stride is the factor's.
  void activate(Activation activation, Binding x, Binding factor, const Rows& rows, Binding out);
  void finish(Binding x, Binding residual, const FinishArgs& how, Binding out);
  void multiply(const Weight& weight, Binding x, int64_t tokens, const Weight* bias, Binding residual,
                const Tensor& rows, Binding out);
  void multiply_pairs(const Weight& weight, const PairRows& rows);
  void project(const Weight& weight, Binding x, int64_t tokens, const Projection& how, Binding out);
  void rope_store(const RopeStoreArgs& args, DType type, int64_t tokens, std::initializer_list<Binding> buffers);
  // Rows as they are; without v the cache keeps values in its keys.
  void store(Binding k, Binding v, const KvLayerView& kv, const StepBatch& batch);
  void rotate_ends(const RotateEndsArgs& args, Binding x, const RopeParams& rope, const StepBatch& batch, Binding out);

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
  bool op(const inferno::AddArgs& a);
  bool op(const inferno::LayerNormArgs& a);
  bool op(const LayerInputArgs& a);
  bool op(const HeadLinearArgs& a);
  bool op(const LatentStoreArgs& a);
  bool op(const MoeMlpArgs& a);
  bool op(const inferno::ShortConvArgs& a);
  bool op(const inferno::DeltaNetArgs& a);
  bool op(const inferno::Mamba2Args& a);
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
