// The CPU backend: one class for scalar, simd and parallel. They differ in the kernel table and the number of threads.
//
// A step is recorded into a plan; end_step hands the whole plan to the pool in one dispatch, and the workers walk it
// with a barrier after each op, or after ops that are joined (cpu_ops.h, joined_layers.h).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_weight.h"
#include "backend/cpu/joined_layers.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/worker.h"
#include "backend/plan.h"
#include "backend/step_times.h"
#include "threading/thread_pool.h"

namespace inferno {

class CpuBackend final : public Backend {
 public:
  // `pool` is null for one thread. With fused = false every fused op runs its default body.
  // `ranks`, where the model is split over several, outlives the backend; one that fails is an Error of end_step.
  CpuBackend(std::string name, const KernelTable& kernels, std::unique_ptr<ThreadPool> pool, DType default_kv,
             bool fused = true, Communicator* ranks = nullptr);

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] DType default_kv_dtype() const override { return default_kv_; }
  [[nodiscard]] bool host_visible() const override { return true; }
  [[nodiscard]] bool cpu_numerics() const override { return true; }
  [[nodiscard]] int workers() const override { return threads(); }
  [[nodiscard]] int32_t token_tile() const override { return kernels_.token_tile; }
  [[nodiscard]] bool supports(OpId op, DType dtype) const override;

  [[nodiscard]] Buffer allocate(size_t bytes) override;
  [[nodiscard]] Buffer allocate_cache(int32_t layer, size_t bytes) override;
  void upload(void* destination, const void* host, size_t bytes) override;
  void download(void* host, const void* source, size_t bytes) override;
  [[nodiscard]] std::unique_ptr<Weight> load_weight(const WeightSource& source, WeightUse uses) override;

  void begin_step(StepMode mode) override;
  void end_step() override;
  void synchronize() override;
  [[nodiscard]] void* scratch(size_t bytes) override;
  void set_timing(bool on) override { timing_ = on; }
  [[nodiscard]] const StepTimes* step_times() const override { return timing_ ? &times_ : nullptr; }

#define OP(name, Args) void name(const Args& args) override;
#include "backend/op_list.inc"

  [[nodiscard]] const KernelTable& kernels() const { return kernels_; }
  [[nodiscard]] int threads() const { return pool_ ? pool_->threads() : 1; }

 protected:
  void deallocate(void* data) noexcept override;

 private:
  template <typename Args>
  void primitive(const Args& args);
  template <typename Args>
  void fused(const Args& args, void (*body)(Backend&, const Args&));
  template <typename Args>
  [[nodiscard]] OpScratch scratch_of(const Args& args) const;
  // Grows the scratch memory so that the op can run after the previous one, and joined layers with theirs side by side.
  void reserve(const OpScratch& op, std::optional<size_t> layer_part);
  void reset_arena();
  void execute();
  void join_layers();
  void walk(int ith, int nth) noexcept;

  std::string name_;
  const KernelTable& kernels_;
  std::unique_ptr<ThreadPool> pool_;
  DType default_kv_;
  bool fused_;
  Communicator* ranks_;

  Plan plan_;
  bool in_step_ = false;
  bool planning_ = false;
  int depth_ = 0;  // default bodies being run
  bool timing_ = false;
  StepTimes times_;

  // Temporaries of default bodies: a bump arena that is reset at every top-level op. It grows by whole blocks, so that
  // addresses handed out stay valid, and is merged into one block at a reset.
  struct Block {
    AlignedMemory memory;
    size_t bytes = 0;
  };
  std::vector<Block> arena_;
  size_t arena_used_ = 0;  // of the last block
  // Kernels' own scratch: shared, then one local part per thread.
  AlignedMemory shared_;
  OpScratch scratch_bytes_;
  std::vector<AlignedMemory> local_;
  int64_t last_local_ = 0;  // of the previous op, per thread
  AlignedMemory converted_;
  // Two sets of counts, [threads] each, empty with one thread: while one round of the walk (an op, or joined ops, up to
  // the barrier) uses one set, the other is zeroed for the next round.
  std::array<std::vector<ChunkCounts>, 2> counts_;
  bool always_steals_ = false;  // in every op
  size_t rounds_walked_ = 0;
  // The most shared memory of the ops of a layer; those of joined layers need theirs at the same time.
  std::array<int64_t, 3> layer_shared_ = {};
  std::vector<std::atomic<uint32_t>> joined_counts_;  // empty with one thread
  std::vector<cpu::JoinedLayers> joined_;             // of the plan that is executed
};

}  // namespace inferno
