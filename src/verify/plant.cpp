#include "verify/plant.h"

#include <cmath>
#include <vector>

#include "backend/op_fields.h"
#include "quant/quant.h"

namespace inferno {

// ---- results

void plant_error(OpImage& image) {
  class Plant final : public FieldVisitor {
   public:
    void tensor(FieldTag tag, std::string_view /*name*/, Tensor& t) override {
      if (done_ || !is_written(tag) || t.data == nullptr || t.elements() == 0) return;
      done_ = true;
      if (t.dtype == DType::i32) {
        t.as<int32_t>()[0] ^= 1;
      } else {
        falsify(t.f32(), t.elements());
      }
    }
    void kv(FieldTag tag, std::string_view /*name*/, KvLayerView& view) override {
      if (is_written(tag)) view_ = view;
    }
    void batch(std::string_view /*name*/, StepBatch& b) override {
      if (done_ || view_.k == nullptr) return;
      for (int32_t t = 0; t < b.tokens && !done_; ++t) {
        if (b.slot[t] < 0) continue;
        done_ = true;
        std::vector<float> row(static_cast<size_t>(view_.head_dim));
        void* const stored = static_cast<char*>(view_.k) + view_.row_offset(b.slot[t], 0);
        dequantize_row(view_.dtype, stored, row.data(), view_.head_dim);
        falsify(row.data(), view_.head_dim);
        quantize_row(view_.dtype, row.data(), stored, view_.head_dim);
      }
    }

   private:
    static void falsify(float* values, int64_t count) {
      double squares = 0;
      for (int64_t i = 0; i < count; ++i) {
        if (std::isfinite(values[i])) squares += static_cast<double>(values[i]) * values[i];
      }
      // A fifth of the vector's length in one element: nmse 0.04.
      const float shift = 0.2F * static_cast<float>(std::sqrt(squares)) + 0.01F;
      values[0] = std::isfinite(values[0]) ? values[0] + shift : shift;
    }
    bool done_ = false;
    KvLayerView view_;
  };
  Plant plant;
  visit_fields(image.record(), plant);
}

// ---- arguments

class WrongArguments::Change final : public FieldVisitor {
 public:
  explicit Change(WrongArguments& owner, bool has_matrix) : owner_(owner), has_matrix_(has_matrix) {}
  void weight(std::string_view /*name*/, const Weight*& w) override {
    if (done_ || w == nullptr || w->shape().rank == 1) return;
    done_ = true;
    w = owner_.negated(*w);
  }
  void attribute(std::string_view /*name*/, double& value) override {
    if (done_ || has_matrix_) return;
    done_ = true;
    value = value == 0 ? 1 : 8 * value;
  }

 private:
  WrongArguments& owner_;
  bool has_matrix_;
  bool done_ = false;
};

OpRecord WrongArguments::of(const OpRecord& record) {
  class FindMatrix final : public FieldVisitor {
   public:
    void weight(std::string_view /*name*/, const Weight*& w) override {
      found = found || (w != nullptr && w->shape().rank > 1);
    }
    bool found = false;
  };
  FindMatrix matrix;
  visit_fields(record, matrix);
  OpRecord wrong = record;
  Change change(*this, matrix.found);
  visit_fields(wrong, change);
  return wrong;
}

const Weight* WrongArguments::negated(const Weight& original) {
  std::unique_ptr<Weight>& made = weights_[&original];
  if (made) return made.get();
  const int64_t cols = original.cols();
  const auto row_size = static_cast<size_t>(row_bytes(original.dtype(), cols));
  std::vector<std::byte> canonical(static_cast<size_t>(original.rows()) * row_size);
  std::vector<float> values(static_cast<size_t>(cols));
  for (int64_t r = 0; r < original.rows(); ++r) {
    const std::span<std::byte> row = std::span(canonical).subspan(static_cast<size_t>(r) * row_size, row_size);
    original.read_row(r, row);
    dequantize_row(original.dtype(), row.data(), values.data(), cols);
    for (float& value : values) value = -value;
    quantize_row(original.dtype(), values.data(), row.data(), cols);
  }
  const HostWeight negative(original.name(), original.dtype(), original.shape(), std::move(canonical));
  made = backend_.load_weight(WeightRows(negative), WeightUse::matmul | WeightUse::gather);
  return made.get();
}

}  // namespace inferno
