// The CUDA backend: weights, activations and the cache are in device memory, and every step runs there.
//
// A step is recorded and launched at end_step, on one stream; nothing waits for it before download or synchronize. A
// step of few tokens that occurs a second time, with the same addresses and counts, is captured into a graph, and
// replayed from then on: lengths and positions are in the StepBatch on the device, so decode steps of one batch size
// are the same graph. The graph also fetches the uploads before the step and delivers the download after it
// (transfers.h). While a step is recorded it is compared, op by op, with the graph that ran last; ops are copied into
// the plan only once they diverge from it.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <bitset>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_weight.h"
#include "backend/cuda/op_runner.h"
#include "backend/cuda/rank_exchange.h"
#include "backend/cuda/transfers.h"
#include "backend/device/step_recorder.h"
#include "backend/plan.h"
#include "backend/step_times.h"

namespace inferno::cuda {

class CudaBackend final : public Backend {
 public:
  // `ranks`, where the model is split over several, outlives the backend.
  explicit CudaBackend(Communicator* ranks = nullptr);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "cuda"; }
  [[nodiscard]] std::string description() const override { return description_; }
  [[nodiscard]] DType default_kv_dtype() const override { return DType::bf16; }
  [[nodiscard]] bool host_visible() const override { return false; }
  [[nodiscard]] bool cpu_numerics() const override { return false; }
  [[nodiscard]] bool supports(OpId op, DType dtype) const override { return ops_->supports(op, dtype); }
  [[nodiscard]] bool supports(const OpRecord& op) const override {
    return OpRunner::has_kernel(op.op()) && OpRunner::lacks(op).empty();
  }
  [[nodiscard]] bool is_wide(const OpRecord& record) const override { return ops_->is_wide(record); }

  [[nodiscard]] int32_t preferred_step_tokens() const override { return 4096; }
  [[nodiscard]] std::optional<DeviceRates> device_rates() override;
  // INFERNO_CUDA_MEMORY (MiB) makes the device seem smaller. Ranks that share a device divide it.
  [[nodiscard]] std::optional<uint64_t> free_memory() const override;

  void join_ranks() override;
  [[nodiscard]] Buffer allocate(size_t bytes) override;
  void copy_cache(int32_t layer, void* destination, const void* source, size_t bytes) override;
  void upload(void* destination, const void* host, size_t bytes) override;
  void download(void* host, const void* source, size_t bytes) override;
  [[nodiscard]] std::unique_ptr<Weight> load_weight(const WeightSource& source, WeightUse uses) override;

  void begin_step(StepMode mode) override;
  void end_step() override;
  void synchronize() override;
  [[nodiscard]] void* scratch(size_t bytes) override;

  // While timing, ops are launched one by one with a time stamp after each; the time of a pair that is launched as one
  // kernel is that of its first op. A step that has a graph is replayed first, as a whole: running a step twice gives
  // the same result, but for layers that carry a state, whose steps are not replayed.
  void set_timing(bool on) override;
  [[nodiscard]] const StepTimes* step_times() const override;

#define PRIMITIVE(name, Args)
#define FUSED(name, Args) void name(const Args& args) override;
#include "backend/op_list.inc"
  void kv_store(const KvStoreArgs& args) override;
  void add(const AddArgs& args) override;

 protected:
  void deallocate(void* data) noexcept override;

 private:
  static constexpr size_t kPlanCapacity = 4096;

  struct Graph {
    std::vector<OpRecord> ops;
    std::vector<Upload> uploads;  // before the ops
    Download download;            // after the ops, or empty
    std::bitset<kOpCount> kinds;  // of the ops
    cudaGraphExec_t executable = nullptr;
    uint64_t last_use = 0;
  };

  // A plan that was launched op by op: when it occurs again it is captured, with the download that followed it.
  struct SeenPlan {
    std::vector<OpRecord> ops;
    Download download;  // the first small one after the launch, or empty
  };

  template <typename Args>
  void record(const Args& args);
  // Launches what was recorded.
  void execute();
  // `after_fetch`: the first kernel may overlap with the one before it, which fetches.
  void launch_ops(bool timed, bool after_fetch = false);
  void launch(Graph& graph, bool timed);
  // The graph of this plan and its uploads, captured at the plan's second occurrence; null: launch op by op.
  Graph* graph_for_plan(const std::vector<OpRecord>& plan);
  void capture(Graph& graph);
  void remember_plan();
  void drop_graphs();
  // Launches the fetch of staged uploads now instead of with the next step.
  void flush_uploads();
  void wait();
  // The same for who cannot fail: what failed is reported by the next call.
  void settle() noexcept;
  void wait_for_delivery();
  // Whether steps are launched op by op, whatever they are.
  [[nodiscard]] bool captures_nothing() const;
  // Each thread has a device of its own, and it need not be this one.
  void use_device() const;
  void record_timestamp();

  std::string description_;
  int device_ = 0;
  Communicator* ranks_;
  NcclWish nccl_wish_ = NcclWish::if_possible;
  int sharing_ = 1;  // ranks that have this device
  LaunchContext context_;
  std::shared_ptr<FreeCount> frees_;
  std::unique_ptr<WeightLoader> loader_;
  std::unique_ptr<RankExchange> exchange_;  // null: one rank
  std::unique_ptr<OpRunner> ops_;

  device::StepRecorder step_{kPlanCapacity};
  std::bitset<kOpCount> in_flight_;  // kinds of the ops launched last, for error messages
  bool in_step_ = false;
  bool planning_ = false;
  bool sync_each_op_ = false;  // INFERNO_CUDA_SYNC: synchronize after every op, so that a failure names it

  std::vector<Graph> graphs_;
  Graph* replay_candidate_ = nullptr;  // the step is compared with its ops
  std::array<SeenPlan, 4> seen_;       // replaced round-robin: steps of a few sizes may alternate
  size_t next_seen_ = 0;
  SeenPlan* last_seen_ = nullptr;  // the last launch's; null if it is not in seen_
  uint64_t graphs_frees_ = 0;      // frees_ when the graphs were captured
  uint64_t uses_ = 0;

  bool timing_ = false;
  std::vector<cudaEvent_t> stamps_;  // before the first op and after each; reused
  size_t stamped_ = 0;               // of the last step
  cudaEvent_t replay_stamps_[2] = {};
  bool replayed_ = false;
  std::optional<DeviceRates> rates_;
  mutable StepTimes times_;

  std::unique_ptr<Transfers> transfers_;
  Download delivered_;  // by the last launch, with nothing enqueued since
  // Large uploads pass through a ring of page-locked memory, so that the caller may reuse its own at once.
  PinnedMemory upload_ring_;
  size_t upload_ring_used_ = 0;
};

}  // namespace inferno::cuda
