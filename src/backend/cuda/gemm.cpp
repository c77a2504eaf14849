#include "backend/cuda/gemm.h"

#include <algorithm>
#include <compare>

#include "backend/cuda/error.h"

namespace inferno::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
// Prompts have every length; the table is cleared when it has this many shapes.
constexpr size_t kMaxEntries = 4096;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

uint32_t alignment_of(const void* p) {
  constexpr uintptr_t kMost = 256;
  const auto address = reinterpret_cast<uintptr_t>(p);
  return static_cast<uint32_t>(std::min(kMost, address & (~address + 1)));
}

}  // namespace

Gemm::Gemm(cudaStream_t stream, const std::shared_ptr<FreeCount>& frees)
    : stream_(stream), workspace_(kWorkspaceBytes, frees) {
  check(cublasLtCreate(&handle_), "starting cuBLAS");
}

Gemm::~Gemm() {
  entries_.clear();
  (void)cublasLtDestroy(handle_);
}

Gemm::Entry::~Entry() {
  if (operation != nullptr) (void)cublasLtMatmulDescDestroy(operation);
  for (cublasLtMatrixLayout_t layout : {w, x, y}) {
    if (layout != nullptr) (void)cublasLtMatrixLayoutDestroy(layout);
  }
}

Gemm::Entry& Gemm::entry(const Product& p) {
  const void* add = p.add != nullptr ? p.add : p.y;
  const Shape shape{p.m,
                    p.n,
                    p.k,
                    p.ldx,
                    p.ldw,
                    p.ldy,
                    p.in,
                    p.out,
                    p.add != nullptr,
                    {alignment_of(p.x), alignment_of(p.w), alignment_of(add), alignment_of(p.y)}};
  if (const auto found = entries_.find(shape); found != entries_.end()) return *found->second;
  if (entries_.size() >= kMaxEntries) entries_.clear();

  auto e = std::make_unique<Entry>();
  const char* what = "preparing a matrix product";
  check(cublasLtMatmulDescCreate(&e->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), what);
  // cuBLAS is column-major: the row-major y is y^T [n, m] = (w^T)^T x^T.
  const cublasOperation_t transpose = CUBLAS_OP_T;
  check(cublasLtMatmulDescSetAttribute(e->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose), what);
  const auto layout = [&](cublasLtMatrixLayout_t* to, DType dtype, int64_t rows, int64_t cols, int64_t ld) {
    check(cublasLtMatrixLayoutCreate(to, type_of(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld),
          what);
  };
  layout(&e->w, p.in, p.k, p.n, p.ldw);
  layout(&e->x, p.in, p.k, p.m, p.ldx);
  layout(&e->y, p.out, p.n, p.m, p.ldy);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), what);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), what);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.alignment[1]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.alignment[0]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.alignment[2]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.alignment[3]);
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, e->operation, e->w, e->x, e->y, e->y, preference, 1, &result, &found);
  (void)cublasLtMatmulPreferenceDestroy(preference);
  check(status, what);
  if (found == 0) fail("cuda: cuBLAS has no kernel for a product of [{}, {}] and [{}, {}]", p.m, p.k, p.n, p.k);
  e->algorithm = result.algo;
  return *entries_.emplace(shape, std::move(e)).first->second;
}

void Gemm::run(const Product& p) {
  Entry& e = entry(p);
  const float one = 1;
  const float beta = p.add != nullptr ? 1 : 0;
  const void* add = p.add != nullptr ? p.add : p.y;
  check(cublasLtMatmul(handle_, e.operation, &one, p.w, e.w, p.x, e.x, &beta, add, e.y, p.y, e.y, &e.algorithm,
                       workspace_.data(), kWorkspaceBytes, stream_),
        "a matrix product");
}

}  // namespace inferno::cuda
