#include "quant/quant.h"

#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "quant/blocks.h"

namespace inferno {

namespace {

// Calls visit(static_cast<const Block*>(nullptr)) with the block struct of a quantized format.
template <typename Visit>
auto visit_block(DType dtype, const Visit& visit) noexcept {
  switch (dtype) {
#define QUANTIZED(name, Name, ...) \
  case DType::name:                \
    return visit(static_cast<const Block##Name*>(nullptr));
#include "tensor/weight_formats.inc"
    default:
      break;
  }
  check_failed(__FILE__, __LINE__, "a quantized weight type");
}

// 16-bit rows may stand at odd addresses, hence memcpy.
template <typename Half>
void widen_row(const void* src, float* dst, int64_t n) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(src);
  for (int64_t i = 0; i < n; ++i) {
    Half value;
    std::memcpy(&value, bytes + i * 2, 2);
    dst[i] = to_float(value);
  }
}

template <typename Half>
void narrow_row(const float* src, void* dst, int64_t n, Half (*narrow)(float)) noexcept {
  auto* bytes = static_cast<unsigned char*>(dst);
  for (int64_t i = 0; i < n; ++i) {
    const Half value = narrow(src[i]);
    std::memcpy(bytes + i * 2, &value, 2);
  }
}

}  // namespace

void dequantize_row(DType dtype, const void* src, float* dst, int64_t n) noexcept {
  if (dtype == DType::f32) {
    std::memcpy(dst, src, static_cast<size_t>(n) * 4);
  } else if (dtype == DType::f16) {
    widen_row<f16>(src, dst, n);
  } else if (dtype == DType::bf16) {
    widen_row<bf16>(src, dst, n);
  } else {
    visit_block(dtype, [&](auto* block) { dequantize(static_cast<decltype(block)>(src), dst, n); });
  }
}

void quantize_row(DType dtype, const float* src, void* dst, int64_t n, const float* importance) noexcept {
  if (dtype == DType::f32) {
    std::memcpy(dst, src, static_cast<size_t>(n) * 4);
  } else if (dtype == DType::f16) {
    narrow_row<f16>(src, dst, n, to_f16);
  } else if (dtype == DType::bf16) {
    narrow_row<bf16>(src, dst, n, to_bf16);
  } else {
    visit_block(dtype, [&](auto* block) {
      using Block = std::remove_const_t<std::remove_pointer_t<decltype(block)>>;
      quantize(src, importance, static_cast<Block*>(dst), n);
    });
  }
}

float dot_row(DType dtype, const void* weight_row, const ActivationView& x, int64_t k) noexcept {
  return visit_block(dtype, [&](auto* block) { return dot(static_cast<decltype(block)>(weight_row), x, k); });
}

}  // namespace inferno
