// Q8_0 in panels of 16 rows, as the 8-bit matrix tiles of x86 read them.
#include <cstring>

#include "backend/cpu/kernels/interleaved/interleaved.h"
#include "quant/blocks.h"

namespace inferno {
namespace {

int64_t panel_bytes(int64_t k) {
  return (k / 32 + 1) / 2 * BytePanel::kPairBytes;
}
int64_t levels_at(int64_t block, int64_t row) {
  return block / 2 * BytePanel::kPairBytes + block % 2 * BytePanel::kLevelBytes + 4 * row;
}
int64_t d_at(int64_t block, int64_t row) {
  return block / 2 * BytePanel::kPairBytes + 2 * BytePanel::kLevelBytes + block % 2 * BytePanel::kDBytes + 2 * row;
}

void pack_panel(const void* rows, int64_t count, int64_t k, void* group) noexcept {
  const auto* from = static_cast<const BlockQ8_0*>(rows);
  auto* to = static_cast<uint8_t*>(group);
  std::memset(to, 0, static_cast<size_t>(panel_bytes(k)));
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t b = 0; b < k / 32; ++b, ++from) {
      std::memcpy(to + d_at(b, r), &from->d, 2);
      for (int64_t c = 0; c < 8; ++c) std::memcpy(to + levels_at(b, r) + 64 * c, from->qs + 4 * c, 4);
    }
  }
}

void unpack_panel_row(const void* group, int64_t row, int64_t k, void* out) noexcept {
  const auto* from = static_cast<const uint8_t*>(group);
  auto* to = static_cast<BlockQ8_0*>(out);
  for (int64_t b = 0; b < k / 32; ++b, ++to) {
    std::memcpy(&to->d, from + d_at(b, row), 2);
    for (int64_t c = 0; c < 8; ++c) std::memcpy(to->qs + 4 * c, from + levels_at(b, row) + 64 * c, 4);
  }
}

constexpr WeightLayout kBytePanels = {"panels of 16 rows in fours of columns", BytePanel::kRows, panel_bytes,
                                      pack_panel, unpack_panel_row};

}  // namespace

const WeightLayout& byte_panel_layout() {
  return kBytePanels;
}

}  // namespace inferno
