// The Metal backend: weights, activations and the cache are in memory that the CPU and an Apple GPU share.
//
// A step is recorded and, at end_step, encoded into one command buffer and committed; nothing waits for it before
// upload, download or synchronize. Its commands are kept: a step with the same addresses and counts as the last one, as
// steps of decode are, is encoded from them. All products have activations in f32, more than the contract's 8 bits
// (is_wide).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/device/step_recorder.h"
#include "backend/metal/device.h"
#include "backend/metal/op_encoder.h"
#include "backend/plan.h"
#include "backend/step_times.h"

namespace inferno::metal {

class MetalBackend final : public Backend {
 public:
  explicit MetalBackend(std::unique_ptr<Device> device);
  ~MetalBackend() override;
  MetalBackend(const MetalBackend&) = delete;
  MetalBackend& operator=(const MetalBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "metal"; }
  [[nodiscard]] std::string description() const override { return device_->description(); }
  [[nodiscard]] DType default_kv_dtype() const override { return DType::bf16; }
  [[nodiscard]] bool host_visible() const override { return true; }
  [[nodiscard]] bool cpu_numerics() const override { return false; }
  // INFERNO_METAL_MIN_ROWS, or the usual number.
  [[nodiscard]] int64_t min_offload_rows() const override;
  [[nodiscard]] bool supports(OpId op, DType dtype) const override;
  [[nodiscard]] bool supports(const OpRecord& op) const override;
  [[nodiscard]] bool is_wide(const OpRecord& record) const override;
  [[nodiscard]] std::optional<uint64_t> free_memory() const override;

  [[nodiscard]] Buffer allocate(size_t bytes) override;
  void copy_cache(int32_t layer, void* destination, const void* source, size_t bytes) override;
  void upload(void* destination, const void* host, size_t bytes) override;
  void download(void* host, const void* source, size_t bytes) override;
  [[nodiscard]] std::unique_ptr<Weight> load_weight(const WeightSource& source, WeightUse uses) override;

  void begin_step(StepMode mode) override;
  void end_step() override;
  void synchronize() override;
  [[nodiscard]] void* scratch(size_t bytes) override;

  // While timing, ops run one by one.
  void set_timing(bool on) override;
  [[nodiscard]] const StepTimes* step_times() const override;

#define PRIMITIVE(name, Args)
#define FUSED(name, Args) void name(const inferno::Args& args) override;
#include "backend/op_list.inc"
  void kv_store(const KvStoreArgs& args) override;
  void add(const inferno::AddArgs& args) override;
  void activate(const inferno::ActivateArgs& args) override;
  void matmul(const inferno::MatmulArgs& args) override;

 protected:
  void deallocate(void* data) noexcept override;

 private:
  template <typename Args>
  void record(const Args& args);
  void plan(const OpRecord& record);
  // Runs what was recorded.
  void execute();
  void encode(const OpRecord& record);
  // The commands of what was recorded, unless the last step's are the same.
  void encode_step();
  void run_timed(const std::vector<OpRecord>& ops);
  // Executes, and waits for everything.
  void wait();
  // The same where nobody can be told of a failure.
  void settle() noexcept;

  std::unique_ptr<Device> device_;
  std::unique_ptr<OpEncoder> ops_;
  device::StepRecorder step_;
  std::vector<OpRecord> encoded_;  // what the commands of ops_ are for; empty: for nothing that may run again
  uint64_t encoded_frees_ = 0;     // the device's, when they were made
  bool in_step_ = false;
  bool planning_ = false;
  bool timing_ = false;
  StepTimes times_;
};

}  // namespace inferno::metal
