// Matrix products through cuBLASLt: row-major out [m, n] = x [m, k] * w [n, k]^T.
//
// The algorithm of a shape is looked up once and kept. f32 stays f32 (TF32 is off); 16-bit inputs accumulate in f32.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>

#include "backend/cuda/device_memory.h"
#include "tensor/dtype.h"

namespace inferno::cuda {

struct Product {
  int64_t m = 0, n = 0, k = 0;
  DType in = DType::bf16;   // of x and w: f32, f16, bf16
  DType out = DType::f32;   // f32, f16, bf16
  const void* x = nullptr;  // rows ldx elements apart
  int64_t ldx = 0;
  const void* w = nullptr;  // rows ldw elements apart
  int64_t ldw = 0;
  void* y = nullptr;  // rows ldy elements apart
  int64_t ldy = 0;
  const void* add = nullptr;  // of the out type, laid out like y, added to the product; may be y
};

class Gemm {
 public:
  Gemm(cudaStream_t stream, const std::shared_ptr<FreeCount>& frees);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  void run(const Product& p);

 private:
  struct Shape {
    int64_t m, n, k, ldx, ldw, ldy;
    DType in, out;
    bool adds;
    uint32_t alignment[4];  // of x, w, add, y
    friend auto operator<=>(const Shape&, const Shape&) = default;
  };
  struct Entry {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    ~Entry();
  };
  Entry& entry(const Product& p);

  cudaStream_t stream_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceMemory workspace_;
  std::map<Shape, std::unique_ptr<Entry>> entries_;
};

}  // namespace inferno::cuda
