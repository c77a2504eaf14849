#include "backend/cpu/cpu_weight.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/kernels/select.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "quant/quant.h"
#include "threading/thread_pool.h"

namespace inferno {
namespace {

// Rows are read from the source in pieces of about this size: large enough for the disk, small compared with the model.
constexpr int64_t kReadBytes = int64_t{1} << 20;

}  // namespace

CpuWeight::CpuWeight(const WeightSource& source, WeightUse uses, const KernelTable& kernels, ThreadPool* pool)
    : Weight(source) {
  if (has_use(uses, WeightUse::vector)) {
    load_vector(source);
    return;
  }
  // Rows that are only looked up stay as they are in the file: the scalar table's layout.
  const KernelTable& table = has_use(uses, WeightUse::matmul) ? kernels : scalar_kernels();
  kernel_ = &table.linear[static_cast<int>(dtype())];
  INFERNO_CHECK(kernel_->name != nullptr);
  load_groups(source, pool);
}

void CpuWeight::load_vector(const WeightSource& source) {
  const int64_t n = shape().elements();
  bytes_ = static_cast<uint64_t>(n) * sizeof(float);
  memory_ = aligned_memory(bytes_);
  std::vector<std::byte> canonical(static_cast<size_t>(row_bytes(dtype(), n)));
  source.read(0, canonical);
  dequantize_row(dtype(), canonical.data(), reinterpret_cast<float*>(memory_.get()), n);
}

void CpuWeight::load_groups(const WeightSource& source, ThreadPool* pool) {
  const WeightLayout& layout = *kernel_->weight;
  matrix_bytes_ = ceil_div(matrix_rows(), layout.row_group) * layout.group_bytes(cols());
  bytes_ = static_cast<uint64_t>(matrices() * matrix_bytes_);
  memory_ = aligned_memory(bytes_);
  struct Job {
    CpuWeight& weight;
    const WeightSource& source;
  } job{*this, source};
  const auto load = [](int ith, int nth, void* context) {
    const auto& [weight, from] = *static_cast<Job*>(context);
    if (weight.matrices() == 1) {
      weight.load_rows(from, 0, slice(weight.rows(), ith, nth, weight.slice_step()));
      return;
    }
    // Which matrices a step reads, and which threads read them, nobody knows.
    const Range part = slice(weight.matrices(), ith, nth);
    for (int64_t m = part.begin; m < part.end; ++m) weight.load_rows(from, m, {0, weight.matrix_rows()});
  };
  if (pool == nullptr) {
    load(0, 1, &job);
  } else {
    pool->dispatch(load, &job);
  }
}

void CpuWeight::load_rows(const WeightSource& source, int64_t matrix, Range part) {
  if (part.empty()) return;
  const WeightLayout& layout = *kernel_->weight;
  const int64_t row = row_bytes(dtype(), cols());
  const int64_t group = layout.group_bytes(cols());
  INFERNO_CHECK(part.begin % layout.row_group == 0);
  std::byte* const packed = memory_.get() + matrix * matrix_bytes_;
  const int64_t rows_per_read = round_up(std::max<int64_t>(1, kReadBytes / row), layout.row_group);
  std::vector<std::byte> canonical(static_cast<size_t>(std::min(rows_per_read, part.size()) * row));
  for (int64_t first = part.begin; first < part.end; first += rows_per_read) {
    const int64_t count = std::min(rows_per_read, part.end - first);
    source.read(static_cast<uint64_t>((matrix * matrix_rows() + first) * row),
                std::span(canonical).first(static_cast<size_t>(count * row)));
    for (int64_t r = 0; r < count; r += layout.row_group) {
      layout.pack(canonical.data() + r * row, std::min(layout.row_group, count - r), cols(),
                  packed + (first + r) / layout.row_group * group);
    }
  }
}

void CpuWeight::unpack(int64_t row, std::byte* out) const noexcept {
  const WeightLayout& layout = *kernel_->weight;
  const std::byte* const packed = memory_.get() + row / matrix_rows() * matrix_bytes_;
  const int64_t in_matrix = row % matrix_rows();
  layout.unpack_row(packed + in_matrix / layout.row_group * layout.group_bytes(cols()), in_matrix % layout.row_group,
                    cols(), out);
}

void CpuWeight::read_row(int64_t row, std::span<std::byte> out) const {
  if (kernel_ == nullptr) {
    quantize_row(dtype(), vector() + row * cols(), out.data(), cols());
    return;
  }
  unpack(row, out.data());
}

void CpuWeight::dequantize(int64_t row, float* out, std::byte* buffer) const noexcept {
  if (kernel_ == nullptr) {
    std::copy_n(vector() + row * cols(), cols(), out);
    return;
  }
  unpack(row, buffer);
  dequantize_row(dtype(), buffer, out, cols());
}

}  // namespace inferno
