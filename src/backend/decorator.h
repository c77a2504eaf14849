// A backend around another one: passes everything on. Decorators override what they are about.
//
// Default bodies call the outermost backend, so that the primitives inside a fused op pass through every decorator.
#pragma once

#include <memory>
#include <utility>

#include "backend/backend.h"

namespace inferno {

class BackendDecorator : public Backend {
 public:
  explicit BackendDecorator(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) { inner_->set_outermost(*this); }

  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] std::string description() const override { return inner_->description(); }
  [[nodiscard]] DType default_kv_dtype() const override { return inner_->default_kv_dtype(); }
  [[nodiscard]] bool host_visible() const override { return inner_->host_visible(); }
  [[nodiscard]] bool cpu_numerics() const override { return inner_->cpu_numerics(); }
  [[nodiscard]] int64_t min_offload_rows() const override { return inner_->min_offload_rows(); }
  [[nodiscard]] int workers() const override { return inner_->workers(); }
  [[nodiscard]] bool supports(OpId op, DType dtype) const override { return inner_->supports(op, dtype); }
  [[nodiscard]] bool supports(const OpRecord& op) const override { return inner_->supports(op); }
  [[nodiscard]] bool is_wide(const OpRecord& record) const override { return inner_->is_wide(record); }

  [[nodiscard]] int32_t preferred_step_tokens() const override { return inner_->preferred_step_tokens(); }
  [[nodiscard]] int32_t token_tile() const override { return inner_->token_tile(); }
  [[nodiscard]] std::optional<DeviceRates> device_rates() override { return inner_->device_rates(); }
  [[nodiscard]] std::optional<uint64_t> free_memory() const override { return inner_->free_memory(); }

  void join_ranks() override { inner_->join_ranks(); }
  void expect(const ModelNeeds& needs) override { inner_->expect(needs); }
  [[nodiscard]] std::optional<FallbackLayers> fallback() const override { return inner_->fallback(); }
  [[nodiscard]] Buffer allocate(size_t bytes) override { return inner_->allocate(bytes); }
  [[nodiscard]] Buffer allocate_cache(int32_t layer, size_t bytes) override {
    return inner_->allocate_cache(layer, bytes);
  }
  void copy_cache(int32_t layer, void* destination, const void* source, size_t bytes) override {
    inner_->copy_cache(layer, destination, source, bytes);
  }
  void upload(void* destination, const void* host, size_t bytes) override { inner_->upload(destination, host, bytes); }
  void download(void* host, const void* source, size_t bytes) override { inner_->download(host, source, bytes); }
  [[nodiscard]] std::unique_ptr<Weight> load_weight(const WeightSource& source, WeightUse uses) override {
    return inner_->load_weight(source, uses);
  }

  void begin_step(StepMode mode) override { inner_->begin_step(mode); }
  void end_step() override { inner_->end_step(); }
  void synchronize() override { inner_->synchronize(); }
  [[nodiscard]] void* scratch(size_t bytes) override { return inner_->scratch(bytes); }
  void set_timing(bool on) override { inner_->set_timing(on); }
  [[nodiscard]] const StepTimes* step_times() const override { return inner_->step_times(); }

  void set_outermost(Backend& outer) override {
    Backend::set_outermost(outer);
    inner_->set_outermost(outer);
  }

#define OP(name, Args) \
  void name(const Args& args) override { inner_->name(args); }
#include "backend/op_list.inc"

 protected:
  [[nodiscard]] Backend& inner() { return *inner_; }
  [[nodiscard]] const Backend& inner() const { return *inner_; }
  // Of a decorator that only borrowed it: nothing may be called any more.
  [[nodiscard]] Backend* release() { return inner_.release(); }
  // Memory always belongs to the innermost backend.
  void deallocate(void* /*data*/) noexcept override {}

 private:
  std::unique_ptr<Backend> inner_;
};

}  // namespace inferno
