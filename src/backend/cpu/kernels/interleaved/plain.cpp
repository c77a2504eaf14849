// Plain weights with the rows of eight interleaved column by column, or as bf16 matrix instructions read them: Arm's by
// pairs of rows and steps of four columns, the matrix tiles of x86 by panels of 16 rows and steps of two columns.
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels/interleaved/interleaved.h"

namespace inferno {
namespace {

template <typename Value>
int64_t columns_bytes(int64_t k) {
  return k * kInterleavedRows * static_cast<int64_t>(sizeof(Value));
}

template <typename Value>
void pack_columns(const void* rows, int64_t count, int64_t k, void* group) noexcept {
  const auto* from = static_cast<const Value*>(rows);
  auto* to = static_cast<Value*>(group);
  for (int64_t r = 0; r < kInterleavedRows; ++r) {
    for (int64_t i = 0; i < k; ++i) to[i * kInterleavedRows + r] = r < count ? from[r * k + i] : Value{0};
  }
}

template <typename Value>
void unpack_columns(const void* group, int64_t row, int64_t k, void* out) noexcept {
  for (int64_t i = 0; i < k; ++i) {
    static_cast<Value*>(out)[i] = static_cast<const Value*>(group)[i * kInterleavedRows + row];
  }
}

template <typename Value>
constexpr WeightLayout kColumns = {"8 rows interleaved", kInterleavedRows, columns_bytes<Value>, pack_columns<Value>,
                                   unpack_columns<Value>};

int64_t pairs_bytes(int64_t k) {
  return columns_bytes<uint16_t>((k + 3) / 4 * 4);
}

// Value (row, column) in units of values: steps of 4 columns, in them pairs of rows, in them rows.
int64_t pair_index(int64_t row, int64_t column) {
  return column / 4 * 32 + row * 4 + column % 4;
}

void pack_pairs(const void* rows, int64_t count, int64_t k, void* group) noexcept {
  auto* to = static_cast<uint16_t*>(group);
  std::memset(group, 0, static_cast<size_t>(pairs_bytes(k)));
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t i = 0; i < k; ++i) to[pair_index(r, i)] = static_cast<const uint16_t*>(rows)[r * k + i];
  }
}

void unpack_pairs(const void* group, int64_t row, int64_t k, void* out) noexcept {
  for (int64_t i = 0; i < k; ++i) {
    static_cast<uint16_t*>(out)[i] = static_cast<const uint16_t*>(group)[pair_index(row, i)];
  }
}

constexpr WeightLayout kPairs = {"8 rows interleaved in pairs", kInterleavedRows, pairs_bytes, pack_pairs,
                                 unpack_pairs};

constexpr int64_t kTilePanelRows = 16;
constexpr int64_t kTileColumns = 32;

int64_t tile_panel_bytes(int64_t k) {
  return (k + kTileColumns - 1) / kTileColumns * kTileColumns * kTilePanelRows * 2;
}

void pack_tile_panel(const void* rows, int64_t count, int64_t k, void* group) noexcept {
  const auto* from = static_cast<const uint16_t*>(rows);
  auto* to = static_cast<uint16_t*>(group);
  const int64_t padded = tile_panel_bytes(k) / (2 * kTilePanelRows);
  for (int64_t i = 0; i < padded; i += 2) {
    for (int64_t r = 0; r < kTilePanelRows; ++r, to += 2) {
      to[0] = r < count && i < k ? from[r * k + i] : uint16_t{0};
      to[1] = r < count && i + 1 < k ? from[r * k + i + 1] : uint16_t{0};
    }
  }
}

void unpack_tile_panel(const void* group, int64_t row, int64_t k, void* out) noexcept {
  const auto* from = static_cast<const uint16_t*>(group) + 2 * row;
  for (int64_t i = 0; i < k; ++i) static_cast<uint16_t*>(out)[i] = from[i / 2 * 2 * kTilePanelRows + i % 2];
}

constexpr WeightLayout kTilePanels = {"panels of 16 rows in pairs of columns", kTilePanelRows, tile_panel_bytes,
                                      pack_tile_panel, unpack_tile_panel};

}  // namespace

const WeightLayout& column_interleaved_layout(int value_bytes) {
  return value_bytes == 4 ? kColumns<uint32_t> : kColumns<uint16_t>;
}

const WeightLayout& pair_interleaved_layout() {
  return kPairs;
}

const WeightLayout& tile_panel_layout() {
  return kTilePanels;
}

}  // namespace inferno
