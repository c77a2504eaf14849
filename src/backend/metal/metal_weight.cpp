#include "backend/metal/metal_weight.h"

#include <algorithm>
#include <vector>

#include "quant/quant.h"

namespace inferno::metal {
namespace {

// Read at a time: large enough for the disk, small beside the model.
constexpr int64_t kPieceBytes = int64_t{4} << 20;

}  // namespace

MetalWeight::MetalWeight(const WeightSource& source, WeightUse uses, Device& device)
    : Weight(source), device_(device), is_vector_(has_use(uses, WeightUse::vector)) {
  if (is_vector_) {
    layout_.bytes = static_cast<uint64_t>(shape().elements()) * sizeof(float);
  } else {
    layout_ = plane_layout(dtype(), rows(), cols());
  }
  memory_ = device_.allocate(static_cast<size_t>(layout_.bytes));
  try {
    is_vector_ ? load_vector(source) : load_planes(source);
  } catch (...) {
    device_.free(memory_);
    throw;
  }
}

MetalWeight::~MetalWeight() {
  device_.free(memory_);
}

void MetalWeight::load_vector(const WeightSource& source) {
  const int64_t n = shape().elements();
  std::vector<std::byte> canonical(static_cast<size_t>(row_bytes(dtype(), n)));
  source.read(0, canonical);
  dequantize_row(dtype(), canonical.data(), reinterpret_cast<float*>(memory_), n);
}

void MetalWeight::load_planes(const WeightSource& source) {
  const int64_t row = row_bytes(dtype(), cols());
  const int64_t most = std::max<int64_t>(1, std::min(rows(), kPieceBytes / std::max<int64_t>(1, row)));
  std::vector<std::byte> piece(static_cast<size_t>(most * row));
  for (int64_t first = 0; first < rows(); first += most) {
    const int64_t count = std::min(most, rows() - first);
    source.read(static_cast<uint64_t>(first * row), std::span(piece).first(static_cast<size_t>(count * row)));
    for (int64_t r = 0; r < count; ++r) pack_row(dtype(), layout_, first + r, piece.data() + r * row, memory());
  }
}

void MetalWeight::read_row(int64_t row, std::span<std::byte> out) const {
  if (is_vector_) {
    quantize_row(dtype(), reinterpret_cast<const float*>(memory_) + row * cols(), out.data(), cols());
  } else {
    unpack_row(dtype(), layout_, row, memory(), out.data());
  }
}

}  // namespace inferno::metal
