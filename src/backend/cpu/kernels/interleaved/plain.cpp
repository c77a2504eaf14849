// Plain weights with the rows of eight interleaved column by column, or, for the bf16 matrix instructions, in pairs of
// rows and steps of four columns.
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

}  // namespace

const WeightLayout& column_interleaved_layout(int value_bytes) {
  return value_bytes == 4 ? kColumns<uint32_t> : kColumns<uint16_t>;
}

const WeightLayout& pair_interleaved_layout() {
  return kPairs;
}

}  // namespace inferno
