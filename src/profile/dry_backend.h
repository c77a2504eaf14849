// A backend that computes nothing: weights are names and shapes, memory is reserved but not committed, and ops are only
// recorded. A model loaded on it uses no memory and shows exactly what its steps would do.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/plan.h"

namespace inferno {

class DryBackend final : public Backend {
 public:
  // Reports name, cache type and supported ops like `like`.
  explicit DryBackend(std::unique_ptr<Backend> like) : like_(std::move(like)) {}

  [[nodiscard]] std::string_view name() const override { return like_->name(); }
  [[nodiscard]] std::string description() const override { return like_->description(); }
  [[nodiscard]] DType default_kv_dtype() const override { return like_->default_kv_dtype(); }
  [[nodiscard]] bool host_visible() const override { return true; }
  [[nodiscard]] bool cpu_numerics() const override { return true; }
  [[nodiscard]] int workers() const override { return like_->workers(); }
  [[nodiscard]] bool supports(OpId op, DType dtype) const override { return like_->supports(op, dtype); }
  [[nodiscard]] bool supports(const OpRecord& op) const override { return like_->supports(op); }

  [[nodiscard]] int32_t preferred_step_tokens() const override { return like_->preferred_step_tokens(); }
  [[nodiscard]] int32_t token_tile() const override { return like_->token_tile(); }
  void expect(const ModelNeeds& needs) override { like_->expect(needs); }
  [[nodiscard]] std::optional<FallbackLayers> fallback() const override { return like_->fallback(); }

  [[nodiscard]] Buffer allocate(size_t bytes) override;
  void upload(void* destination, const void* host, size_t bytes) override;
  void download(void* host, const void* source, size_t bytes) override;
  [[nodiscard]] std::unique_ptr<Weight> load_weight(const WeightSource& source, WeightUse uses) override;
  void begin_step(StepMode mode) override;
  void end_step() override {}
  void synchronize() override {}
  [[nodiscard]] void* scratch(size_t /*bytes*/) override { return nullptr; }

#define OP(name, Args) void name(const Args& args) override;
#include "backend/op_list.inc"

  // Ops of the last step, a planned one included.
  [[nodiscard]] const std::vector<OpRecord>& step() const { return step_; }
  [[nodiscard]] uint64_t allocated() const { return allocated_; }
  // The backend it imitates.
  [[nodiscard]] Backend& like() { return *like_; }

 protected:
  void deallocate(void* data) noexcept override;

 private:
  std::unique_ptr<Backend> like_;
  std::map<void*, size_t> sizes_;
  uint64_t allocated_ = 0;
  std::vector<OpRecord> step_;
};

}  // namespace inferno
