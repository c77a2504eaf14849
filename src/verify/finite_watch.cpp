#include "verify/finite_watch.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "backend/op_group.h"
#include "quant/quant.h"

namespace inferno {
namespace {

bool all_finite(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float x) { return std::isfinite(x); });
}

// Looks at what an op wrote, wherever the backend has it.
class Look final : public FieldVisitor {
 public:
  explicit Look(Backend& backend) : backend_(backend) {}

  void tensor(FieldTag tag, std::string_view name, Tensor& t) override {
    if (!is_written(tag) || t.empty() || t.dtype != DType::f32) return;
    if (tag == FieldTag::state) {
      states_ = {t, std::string(name)};
    } else {
      look(t, name);
    }
  }
  void kv(FieldTag tag, std::string_view name, KvLayerView& view) override {
    if (is_written(tag)) stored_ = {view, std::string(name)};
  }
  // Comes after the cache and the states: their rows of this step.
  void batch(std::string_view /*name*/, StepBatch& b) override {
    if (states_) {
      std::vector<int32_t> slots(static_cast<size_t>(b.sequences));
      backend_.download(slots.data(), b.state_slot, slots.size() * sizeof(int32_t));
      for (const int32_t slot : slots) look(states_->tensor.row_range(slot, 1), states_->name);
    }
    if (!stored_) return;
    std::vector<int32_t> slots(static_cast<size_t>(b.tokens));
    backend_.download(slots.data(), b.slot, slots.size() * sizeof(int32_t));
    for (const KvLayerView& rows : {stored_->view, stored_->view.values()}) {
      std::vector<std::byte> bytes(static_cast<size_t>(rows.row_bytes()));
      std::vector<float> values(static_cast<size_t>(rows.head_dim));
      for (const int32_t slot : slots) {
        for (int32_t head = 0; slot >= 0 && head < rows.kv_heads; ++head) {
          backend_.download(bytes.data(), static_cast<std::byte*>(rows.k) + rows.row_offset(slot, head), bytes.size());
          dequantize_row(rows.dtype, bytes.data(), values.data(), rows.head_dim);
          if (!all_finite(values)) note(stored_->name);
        }
      }
    }
  }
  [[nodiscard]] const std::optional<std::string>& field() const { return field_; }

 private:
  struct Stored {
    KvLayerView view;
    std::string name;
  };
  struct States {
    Tensor tensor;
    std::string name;
  };
  void look(const Tensor& t, std::string_view name) {
    std::vector<float> values(static_cast<size_t>(t.elements()));
    backend_.download(values.data(), t.data, values.size() * sizeof(float));
    if (!all_finite(values)) note(name);
  }
  void note(std::string_view name) {
    if (!field_) field_ = name;
  }

  Backend& backend_;
  std::optional<Stored> stored_;
  std::optional<States> states_;
  std::optional<std::string> field_;
};

}  // namespace

FiniteWatch::FiniteWatch(Backend& backend, Backend& outermost)
    : BackendDecorator(std::unique_ptr<Backend>(&backend)), before_(outermost) {}

FiniteWatch::~FiniteWatch() {
  release()->set_outermost(before_);
}

void FiniteWatch::begin_step(StepMode mode) {
  mode_ = mode;
  layer_ = kNoLayer;
  BackendDecorator::begin_step(mode);
}

template <typename Args>
void FiniteWatch::watch(const Args& args) {
  OpRecord record;
  record.assign(args);
  make_public(record);
  ++depth_;
  call_op(inner(), record);
  --depth_;
  if (depth_ == 0 && mode_ == StepMode::run && !found_) look(record);
}

void FiniteWatch::look(const OpRecord& record) {
  layer_ = layer_of(record).value_or(layer_);
  Look look(inner());
  visit_fields(record, look);
  if (look.field()) found_ = {record.op(), layer_, *look.field()};
}

#define OP(name, Args)                       \
  void FiniteWatch::name(const Args& args) { \
    watch(args);                             \
  }
#include "backend/op_list.inc"

}  // namespace inferno
