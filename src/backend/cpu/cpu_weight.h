// A weight in CPU memory: packed for the table's linear kernel, or as plain f32 for vectors.
#pragma once

#include <cstddef>

#include "backend/cpu/aligned_memory.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "backend/weight.h"
#include "threading/partition.h"

namespace inferno {

class ThreadPool;

class CpuWeight final : public Weight {
 public:
  // Reads and packs the source. A vector use gives f32 values; matmul gives the kernel's layout, from which rows can be
  // looked up too; gather alone keeps the file's layout. With a pool each thread reads and packs the rows that it will
  // multiply: a page is placed on the NUMA node of the thread that first writes it.
  CpuWeight(const WeightSource& source, WeightUse uses, const KernelTable& kernels, ThreadPool* pool = nullptr);

  [[nodiscard]] uint64_t bytes() const override { return bytes_; }
  void read_row(int64_t row, std::span<std::byte> out) const override;
  // Row as f32; `buffer` has room for one canonical row.
  void dequantize(int64_t row, float* out, std::byte* buffer) const noexcept;

  [[nodiscard]] const LinearKernel& kernel() const { return *kernel_; }
  // Threads split the rows at multiples of this: whole kernel steps, and no cache line of an f32 output is shared.
  [[nodiscard]] int64_t slice_step() const { return cache_line_step(kernel_->row_step, sizeof(float)); }
  [[nodiscard]] const void* groups() const { return memory_.get(); }
  // Of a weight of several matrices, [matrices, rows, cols]: the groups of one. Each begins with a group of its own.
  [[nodiscard]] const void* groups(int64_t matrix) const { return memory_.get() + matrix * matrix_bytes_; }
  [[nodiscard]] const float* vector() const { return reinterpret_cast<const float*>(memory_.get()); }

 private:
  void load_vector(const WeightSource& source);
  void load_groups(const WeightSource& source, ThreadPool* pool);
  // Rows of one matrix.
  void load_rows(const WeightSource& source, int64_t matrix, Range part);
  [[nodiscard]] int64_t matrices() const { return shape().rank == 3 ? shape()[0] : 1; }
  [[nodiscard]] int64_t matrix_rows() const { return rows() / matrices(); }
  void unpack(int64_t row, std::byte* out) const noexcept;

  const LinearKernel* kernel_ = nullptr;  // null: a vector
  AlignedMemory memory_;
  uint64_t bytes_ = 0;
  int64_t matrix_bytes_ = 0;  // all groups of one matrix
};

}  // namespace inferno
