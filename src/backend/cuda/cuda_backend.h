// The CUDA backend: weights, activations and the cache on the device, every step carried out there.
//
// A step is recorded and launched at end_step, on one stream; nothing waits for it before download or synchronize. A
// step of few tokens that comes a second time, with the same addresses and counts, is captured into a graph, and from
// then on replayed: lengths and positions live in the StepBatch on the device, so decode steps all look alike. The
// graph also fetches the uploads before the step and delivers the download behind it (transfers.h). While a step is
// recorded it is compared with the graph that ran last, op by op, and only written down where it differs.
#pragma once

#include <cuda_runtime_api.h>

#include <bitset>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_weight.h"
#include "backend/cuda/op_runner.h"
#include "backend/cuda/transfers.h"
#include "backend/plan.h"
#include "backend/step_times.h"

namespace inferno::cuda {

class CudaBackend final : public Backend {
 public:
  CudaBackend();
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "cuda"; }
  [[nodiscard]] std::string description() const override { return description_; }
  [[nodiscard]] DType default_kv_dtype() const override { return DType::bf16; }
  [[nodiscard]] bool host_visible() const override { return false; }
  [[nodiscard]] bool supports(OpId op, DType dtype) const override { return ops_->supports(op, dtype); }

  [[nodiscard]] int32_t preferred_step_tokens() const override { return 4096; }
  [[nodiscard]] std::optional<DeviceRates> device_rates() override;
  // INFERNO_CUDA_MEMORY (MiB) makes the device seem smaller.
  [[nodiscard]] std::optional<uint64_t> free_memory() const override;

  [[nodiscard]] Buffer allocate(size_t bytes) override;
  void upload(void* destination, const void* host, size_t bytes) override;
  void download(void* host, const void* source, size_t bytes) override;
  [[nodiscard]] std::unique_ptr<Weight> load_weight(const WeightSource& source, WeightUse uses) override;

  void begin_step(StepMode mode) override;
  void end_step() override;
  void synchronize() override;
  [[nodiscard]] void* scratch(size_t bytes) override;

  // While timing, ops are launched one by one with a time stamp after each; the time of a pair that is launched as one
  // stands under the first op. A step that would be a graph is replayed first, as a whole: running a step twice gives
  // the same again.
  void set_timing(bool on) override;
  [[nodiscard]] const StepTimes* step_times() const override;

#define PRIMITIVE(name, Args)
#define FUSED(name, Args) void name(const Args& args) override;
#include "backend/op_list.inc"
  void kv_store(const KvStoreArgs& args) override;

 protected:
  void deallocate(void* data) noexcept override;

 private:
  static constexpr size_t kPlanCapacity = 4096;

  struct Graph {
    std::vector<OpRecord> ops;
    std::vector<Upload> uploads;  // before the ops
    Download download;            // behind them, or empty
    std::bitset<kOpCount> kinds;  // of the ops
    cudaGraphExec_t executable = nullptr;
    uint64_t last_use = 0;
  };

  template <typename Args>
  void record(const Args& args);
  // Launches what was recorded.
  void execute();
  void launch_ops(bool timed);
  void launch(Graph& graph, bool timed);
  // The graph of this plan and its uploads, captured if it is time to; null: launch op by op.
  Graph* graph_for_plan();
  void capture(Graph& graph);
  void drop_graphs();
  // From here on the plan is written down.
  void stop_following();
  // Uploads that wait for a launch do so no longer.
  void flush_uploads();
  void wait();
  void wait_for_delivery();
  void stamp();

  std::string description_;
  LaunchContext context_;
  std::shared_ptr<FreeCount> frees_;
  std::unique_ptr<WeightLoader> loader_;
  std::unique_ptr<OpRunner> ops_;

  std::vector<OpRecord> plan_;
  std::bitset<kOpCount> under_way_;  // kinds of the ops launched last, for the message when they fail
  bool in_step_ = false;
  bool planning_ = false;
  bool step_by_step_ = false;  // INFERNO_CUDA_SYNC: wait after every op, so that a failure names it

  std::vector<Graph> graphs_;
  Graph* followed_ = nullptr;  // this step has been like its first matched_ ops so far, and plan_ is empty
  size_t matched_ = 0;
  std::vector<OpRecord> previous_;  // the last plan that was launched op by op
  uint64_t graphs_frees_ = 0;       // frees_ when the graphs were captured
  uint64_t uses_ = 0;

  bool timing_ = false;
  std::vector<cudaEvent_t> stamps_;  // one before the first op, one after each; reused
  size_t stamped_ = 0;               // of them in the last step
  cudaEvent_t replay_stamps_[2] = {};
  bool replayed_ = false;
  std::optional<DeviceRates> rates_;
  mutable StepTimes times_;

  std::unique_ptr<Transfers> transfers_;
  Download wanted_;     // the first small download since the last launch
  Download delivered_;  // what the last launch delivers by itself, and nothing was enqueued since
  // Other uploads go through a ring of page-locked memory, so that the caller's memory is free at once.
  PinnedMemory ring_;
  size_t ring_used_ = 0;
};

}  // namespace inferno::cuda
