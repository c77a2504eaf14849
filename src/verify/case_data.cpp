#include "verify/case_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "backend/op_fields.h"
#include "quant/quant.h"

namespace inferno {

uint32_t CaseData::next() {
  state_ = state_ * 1664525U + 1013904223U;
  return state_ >> 8;  // the low bits of such a generator are poor
}

float CaseData::normal() {
  float sum = 0;
  for (int i = 0; i < 12; ++i) sum += static_cast<float>(next()) * 0x1p-24F;
  return sum - 6.0F;
}

int32_t CaseData::below(int32_t limit) {
  return static_cast<int32_t>(next() % static_cast<uint32_t>(limit));
}

Tensor CaseData::normals(const Shape& shape, float scale) {
  const Tensor t = image_.tensor(shape);
  for (int64_t i = 0; i < t.elements(); ++i) t.f32()[i] = normal() * scale;
  return t;
}

Tensor CaseData::positives(const Shape& shape) {
  const Tensor t = normals(shape);
  for (int64_t i = 0; i < t.elements(); ++i) t.f32()[i] = std::fabs(t.f32()[i]) + 0.01F;
  return t;
}

Tensor CaseData::ints(const std::vector<int32_t>& values) {
  const Tensor t = image_.tensor(Shape(static_cast<int64_t>(values.size())), DType::i32);
  std::copy(values.begin(), values.end(), t.as<int32_t>());
  return t;
}

Tensor CaseData::ints_below(int64_t count, int32_t limit) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int32_t& value : values) value = below(limit);
  return ints(values);
}

Tensor CaseData::output(const Shape& shape, DType dtype) {
  const Tensor t = image_.tensor(shape, dtype);
  std::memset(t.data, 0xff, static_cast<size_t>(t.bytes()));
  return t;
}

const Weight* CaseData::matrix(const char* name, DType dtype, const Shape& shape) {
  const int64_t rows = shape.rows();
  const int64_t cols = shape.cols();
  const auto row_size = static_cast<size_t>(row_bytes(dtype, cols));
  std::vector<std::byte> canonical(static_cast<size_t>(rows) * row_size);
  std::vector<float> row(static_cast<size_t>(cols));
  const float scale = 1.0F / std::sqrt(static_cast<float>(cols));
  // Quantizing takes most of the time of making a case, so rows repeat; at a distance no layout groups rows by.
  constexpr int64_t kDistinctRows = 13;
  for (int64_t r = 0; r < rows; ++r) {
    std::byte* const to = canonical.data() + static_cast<size_t>(r) * row_size;
    if (r >= kDistinctRows) {
      std::memcpy(to, to - static_cast<size_t>(kDistinctRows) * row_size, row_size);
      continue;
    }
    for (float& value : row) value = normal() * scale;
    quantize_row(dtype, row.data(), to, cols);
  }
  return image_.weight(name, dtype, shape, std::move(canonical));
}

const Weight* CaseData::matrix(const char* name, DType dtype, int64_t rows, int64_t cols) {
  return matrix(name, dtype, Shape(rows, cols));
}

const Weight* CaseData::vector(const char* name, int64_t n, DType dtype) {
  std::vector<std::byte> canonical(static_cast<size_t>(row_bytes(dtype, n)));
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = 1.0F + normal() * 0.25F;
  quantize_row(dtype, values.data(), canonical.data(), n);
  return image_.weight(name, dtype, Shape(n), std::move(canonical));
}

RopeParams CaseData::rope(int64_t positions, int32_t rotated_dims, RopePairing pairing) {
  const int64_t pairs = rotated_dims / 2;
  const Tensor table = image_.tensor(Shape(positions, pairs, 2));
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < pairs; ++i) {
      const double frequency = std::pow(10000.0, -2.0 * static_cast<double>(i) / rotated_dims);
      const double angle = static_cast<double>(p) * frequency;
      table.f32()[(p * pairs + i) * 2] = static_cast<float>(std::cos(angle));
      table.f32()[(p * pairs + i) * 2 + 1] = static_cast<float>(std::sin(angle));
    }
  }
  return {table, rotated_dims, pairing};
}

CaseData::Cache CaseData::cache(const AttentionShape& shape, bool stored, bool padding) {
  int32_t tokens = 0;
  int32_t max_pages = 0;
  int32_t used_pages = 0;
  for (const SequenceShape& s : shape.sequences) {
    tokens += s.queries;
    const int32_t pages = pages_of(s.cached + s.queries, shape.page_size);
    max_pages = std::max(max_pages, pages);
    used_pages += pages;
  }
  const auto sequences = static_cast<int32_t>(shape.sequences.size());
  const int32_t pages = used_pages + 2;  // pages of nobody must stay untouched
  std::vector<int32_t> order(static_cast<size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size() - 1; i > 0; --i) {
    std::swap(order[i], order[static_cast<size_t>(below(static_cast<int32_t>(i) + 1))]);
  }

  Cache cache;
  cache.view = {.pages = pages,
                .page_size = shape.page_size,
                .kv_heads = shape.kv_heads,
                .head_dim = shape.head_dim,
                .dtype = shape.kv,
                .v_head_dim = shape.v_head_dim,
                .v_in_k = shape.v_in_k};
  const int64_t rows = int64_t{shape.kv_heads} * shape.page_size;
  cache.view.k = output(Shape(pages, rows, shape.head_dim), shape.kv).data;
  const int32_t stored_values = shape.v_in_k ? shape.head_dim : cache.view.value_dim();
  cache.view.v = output(Shape(pages, rows, stored_values), shape.kv).data;

  HostBatch host({.max_tokens = tokens + 1,
                  .max_sequences = sequences + 1,
                  .max_logit_rows = sequences,
                  .max_pages = max_pages + 1});
  size_t next_page = 0;
  int32_t token = 0;
  for (const SequenceShape& s : shape.sequences) {
    const int32_t length = s.cached + s.queries;
    const int32_t* table = order.data() + next_page;
    const int32_t count = pages_of(length, shape.page_size);
    next_page += static_cast<size_t>(count);
    host.begin_sequence(length, table, count);
    for (int32_t p = 0; p < length; ++p) {
      const int32_t slot = table[p / shape.page_size] * shape.page_size + p % shape.page_size;
      if (p >= s.cached) host.add_token(0, p, padding && token++ == 1 ? -1 : slot, p == length - 1);
      if (p >= s.cached && !stored) continue;
      for (int32_t head = 0; head < shape.kv_heads; ++head) {
        for (const KvLayerView& rows_of : {cache.view, cache.view.values()}) {
          std::vector<float> row(static_cast<size_t>(rows_of.head_dim));
          for (float& value : row) value = normal();
          quantize_row(shape.kv, row.data(), static_cast<char*>(rows_of.k) + rows_of.row_offset(slot, head),
                       rows_of.head_dim);
        }
      }
    }
  }
  const Tensor block = ints(host.block());
  cache.batch = host.view(block.as<int32_t>());
  return cache;
}

CaseData::States CaseData::states(const std::vector<SequenceShape>& sequences, int64_t floats) {
  const auto count = static_cast<int32_t>(sequences.size());
  int32_t tokens = 0;
  for (const SequenceShape& s : sequences) tokens += s.queries;
  States result;
  result.states = output(Shape(count + 2, floats));
  HostBatch host({.max_tokens = tokens, .max_sequences = count, .max_logit_rows = count, .max_pages = 1});
  constexpr int32_t kNoPages[1] = {0};
  for (int32_t i = 0; i < count; ++i) {
    const SequenceShape& s = sequences[static_cast<size_t>(i)];
    const int32_t slot = count - 1 - i;  // the last two are of nobody
    host.begin_sequence(s.cached + s.queries, kNoPages, 1, slot);
    for (int32_t p = s.cached; p < s.cached + s.queries; ++p) host.add_token(0, p, -1, false);
    if (s.cached == 0) continue;
    float* state = result.states.row_range(slot, 1).f32();
    for (int64_t f = 0; f < floats; ++f) state[f] = normal();
  }
  result.batch = host.view(ints(host.block()).as<int32_t>());
  return result;
}

AttentionShape mixed_batch(DType kv, int32_t head_dim) {
  return {.sequences = {{.cached = 21, .queries = 1}, {.cached = 0, .queries = 5}, {.cached = 17, .queries = 3}},
          .q_heads = 6,
          .kv_heads = 2,
          .head_dim = head_dim,
          .page_size = 4,
          .kv = kv};
}

}  // namespace inferno
