// Recurrent layers in the scalar table. Four floats are a register of every machine, and compilers add and multiply
// them as they are; where it has a fused multiply-add of four, they find that too.
#include <cmath>

#include "backend/cpu/kernels/recurrent.h"
#include "backend/cpu/kernels/scalar/scalar.h"

namespace inferno {
namespace {

struct Quad {
  using Vector = float __attribute__((vector_size(16)));
  static constexpr int64_t kCount = 4;

  static Vector load(const float* from) { return load_some(from, kCount); }
  static Vector load_some(const float* from, int64_t count) {
    Vector value = {};
    __builtin_memcpy(&value, from, static_cast<size_t>(count) * sizeof(float));
    return value;
  }
  static void store(float* to, Vector value) { store_some(to, value, kCount); }
  static void store_some(float* to, Vector value, int64_t count) {
    __builtin_memcpy(to, &value, static_cast<size_t>(count) * sizeof(float));
  }
  static Vector set(float x) { return Vector{x, x, x, x}; }
  static Vector fma(Vector a, Vector b, Vector c) {
    return Vector{std::fma(a[0], b[0], c[0]), std::fma(a[1], b[1], c[1]), std::fma(a[2], b[2], c[2]),
                  std::fma(a[3], b[3], c[3])};
  }
};

}  // namespace

void fill_scalar_recurrent(KernelTable& table) {
  fill_recurrent<Quad>(table);
}

}  // namespace inferno
