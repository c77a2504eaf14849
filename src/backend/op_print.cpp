#include "backend/op_print.h"

#include <fmt/core.h>

#include "backend/op_fields.h"

namespace inferno {
namespace {

class Print final : public FieldVisitor {
 public:
  void tensor(FieldTag tag, std::string_view name, Tensor& t) override {
    if (t.data != nullptr && !is_write_only(tag)) add(name, t);
  }
  void weight(std::string_view name, const Weight*& w) override {
    if (w != nullptr) add(name, Tensor{nullptr, w->shape(), w->dtype()});
  }
  void kv(FieldTag /*tag*/, std::string_view name, KvLayerView& view) override {
    add(name, Tensor{nullptr, Shape(view.pages, view.kv_heads, view.page_size, view.head_dim), view.dtype});
  }
  void batch(std::string_view name, StepBatch& b) override {
    add(name, Tensor{nullptr, Shape(b.tokens, b.sequences), DType::i32});
  }
  std::string text;

 private:
  void add(std::string_view name, const Tensor& t) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{}={}", name, to_string(t));
  }
};

}  // namespace

std::string format_args(const OpRecord& record) {
  Print print;
  visit_fields(record, print);
  return std::move(print.text);
}

std::string format_time(double microseconds) {
  return microseconds < 1000 ? fmt::format("{:.1f}us", microseconds) : fmt::format("{:.3f}ms", microseconds / 1000);
}

}  // namespace inferno
