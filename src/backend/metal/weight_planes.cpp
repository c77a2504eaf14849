#include "backend/metal/weight_planes.h"

#include <cstring>

#include "base/error.h"

namespace inferno::metal {
namespace {

template <typename Byte>
device::PlaneRow<Byte> row_at(DType dtype, const PlaneArgs& planes, int64_t row, Byte* memory) {
  const device::PlaneRow<Byte> first{memory + planes.q, memory + planes.h, memory + planes.s, memory + planes.d,
                                     static_cast<int>(planes.groups)};
  return device::row_of<LevelOrder>(dtype, first, row);
}

}  // namespace

PlaneLayout plane_layout(DType dtype, int64_t rows, int64_t cols) {
  INFERNO_CHECK(cols % weight_format(dtype).block == 0);
  const device::PlaneLayout planes = device::plane_layout<LevelOrder>(dtype, rows, cols);
  return {.args = {.q = static_cast<args_ulong>(planes.q),
                   .h = static_cast<args_ulong>(planes.h),
                   .s = static_cast<args_ulong>(planes.s),
                   .d = static_cast<args_ulong>(planes.d),
                   .groups = static_cast<args_uint>(planes.groups),
                   .row_stride = static_cast<args_uint>(planes.row_stride),
                   .rows = static_cast<args_uint>(rows),
                   .cols = static_cast<args_uint>(cols)},
          .bytes = static_cast<uint64_t>(planes.bytes)};
}

void pack_row(DType dtype, const PlaneLayout& layout, int64_t row, const std::byte* source,
              std::span<std::byte> planes) {
  INFERNO_CHECK(planes.size() == layout.bytes && row < layout.args.rows);
  auto* memory = reinterpret_cast<uint8_t*>(planes.data());
  if (is_quantized(dtype)) {
    device::pack_row<LevelOrder>(dtype, reinterpret_cast<const uint8_t*>(source),
                                 row_at(dtype, layout.args, row, memory));
  } else {
    std::memcpy(memory + row * layout.args.row_stride, source, static_cast<size_t>(row_bytes(dtype, layout.args.cols)));
  }
}

void unpack_row(DType dtype, const PlaneLayout& layout, int64_t row, std::span<const std::byte> planes,
                std::byte* out) {
  INFERNO_CHECK(planes.size() == layout.bytes && row < layout.args.rows);
  const auto* memory = reinterpret_cast<const uint8_t*>(planes.data());
  if (is_quantized(dtype)) {
    device::unpack_row<LevelOrder>(dtype, row_at(dtype, layout.args, row, memory), reinterpret_cast<uint8_t*>(out));
  } else {
    std::memcpy(out, memory + row * layout.args.row_stride, static_cast<size_t>(row_bytes(dtype, layout.args.cols)));
  }
}

}  // namespace inferno::metal
