// TMA tensor maps of rows of 16-bit values, those of a layer's cache among them: boxes of some rows and 64 values,
// swizzled in shared memory in pieces of 16 bytes by the row's number modulo 8.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "backend/kv_view.h"

namespace inferno::cuda {

inline constexpr int kMapRows = 64;  // positions of a box at most: never across a page

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// The driver's function, found at run time so that the program starts without a driver.
inline EncodeTiled encode_tiled() {
  static const auto kFunction = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    constexpr unsigned kSince = 12000;
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, kSince, cudaEnableDefault, &result);
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTiled>(found)
                                                                          : nullptr;
  }();
  return kFunction;
}

[[nodiscard]] inline bool maps_cache(const KvLayerView& kv) {
  return (kv.dtype == DType::bf16 || kv.dtype == DType::f16) && (kv.head_dim == 64 || kv.head_dim == 128) &&
         kv.page_size % kMapRows == 0 && kv.pages > 0 && int64_t{kv.pages} * kv.kv_heads * kv.page_size <= INT32_MAX &&
         encode_tiled() != nullptr;
}

// A map of `rows` rows of `cols` 16-bit values, `stride` bytes apart, in boxes of `box_rows` and 64 values; rows and
// columns beyond the last are zero. False: the driver refuses.
[[nodiscard]] inline bool map_rows(const void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride,
                                   int box_rows, CUtensorMap* map) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride)};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  const auto type = dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode_tiled()(map, type, 2, const_cast<void*>(data), sizes, strides, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// The same as [64 columns][row][column within], in boxes of `box_rows` rows of 128 columns: two tiles, one after the
// other. cols is a multiple of 64.
[[nodiscard]] inline bool map_row_pairs(const void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride,
                                        int box_rows, CUtensorMap* map) {
  const cuuint64_t sizes[3] = {64, static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(cols / 64)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(stride), 128};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), 2};
  const cuuint32_t steps[3] = {1, 1, 1};
  const auto type = dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode_tiled()(map, type, 3, const_cast<void*>(data), sizes, strides, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Maps of K and V, [pages * kv_heads * page_size, head_dim] each, in boxes of `rows`; false: the driver refuses.
[[nodiscard]] inline bool map_cache(const KvLayerView& kv, int rows, CUtensorMap* k, CUtensorMap* v) {
  const int64_t count = int64_t{kv.pages} * kv.kv_heads * kv.page_size;
  return map_rows(kv.k, kv.dtype, count, kv.head_dim, kv.row_bytes(), rows, k) &&
         map_rows(kv.v, kv.dtype, count, kv.head_dim, kv.row_bytes(), rows, v);
}

}  // namespace inferno::cuda
