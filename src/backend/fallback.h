// A device backend and another one to fall back to: a model that does not fit the device's memory keeps its last
// layers, whole and with their cache, on the other.
//
// What stays is decided when the model's needs become known (expect), before anything is loaded; a model that fits
// never makes the other backend. Then weights and caches are loaded where their layer runs. Activations live on the
// device and have a mirror in host memory; a tensor is copied when an op on the other side wants it, so a step moves
// the residual stream over once and back once. Where the host sees the device's memory nothing is copied: the sides
// wait for each other.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/decorator.h"
#include "backend/plan.h"

namespace inferno {

class FallbackBackend final : public BackendDecorator {
 public:
  using Maker = std::function<std::unique_ptr<Backend>()>;
  // `make_other` makes a CPU backend.
  FallbackBackend(std::unique_ptr<Backend> device, Maker make_other)
      : BackendDecorator(std::move(device)), make_other_(std::move(make_other)) {}

  [[nodiscard]] std::string description() const override;
  [[nodiscard]] bool supports(OpId op, DType dtype) const override;
  [[nodiscard]] bool is_wide(const OpRecord& record) const override;
  void expect(const ModelNeeds& needs) override;
  [[nodiscard]] std::optional<FallbackLayers> fallback() const override;

  [[nodiscard]] Buffer allocate(size_t bytes) override;
  [[nodiscard]] Buffer allocate_cache(int32_t layer, size_t bytes) override;
  void copy_cache(int32_t layer, void* destination, const void* source, size_t bytes) override;
  void upload(void* destination, const void* host, size_t bytes) override;
  void download(void* host, const void* source, size_t bytes) override;
  [[nodiscard]] std::unique_ptr<Weight> load_weight(const WeightSource& source, WeightUse uses) override;

  void begin_step(StepMode mode) override;
  void end_step() override;
  void synchronize() override;

#define OP(name, Args) void name(const Args& args) override;
#include "backend/op_list.inc"

 private:
  enum class Newer : uint8_t { both, device, host };
  // Memory of the device and its mirror.
  struct Mirror {
    size_t bytes = 0;
    std::unique_ptr<std::byte[]> host;
    Newer newer = Newer::both;
  };
  class ToHost;
  class ToDevice;

  template <typename Args>
  void place(const Args& args);
  [[nodiscard]] bool keeps(int32_t layer) const { return other_ == nullptr || layer < first_; }
  // The mirror that holds a device address, and the address in it; null: none does.
  [[nodiscard]] Mirror* find(const void* address, std::byte** in_mirror);
  [[nodiscard]] bool in_other_cache(const void* address) const;
  void wait_for_other();

  Maker make_other_;
  std::unique_ptr<Backend> other_;  // null: the whole model is on the device
  int32_t first_ = 0;               // layer that runs there
  std::map<std::byte*, Mirror> mirrors_;
  std::map<std::byte*, size_t> other_caches_;
  int layer_ = kNoLayer;
  bool planning_ = false;
  bool other_has_ops_ = false;  // recorded and not known to be done
  bool device_has_ops_ = false;
};

}  // namespace inferno
