// Recurrent layers with the widest vectors the file is compiled for.
#pragma once

#include "backend/cpu/kernels/recurrent.h"
#include "backend/cpu/kernels/x86/floats.h"

namespace inferno {
namespace {

struct WideLanes {
  using Vector = Wide;
  static constexpr int64_t kCount = kWide;

  static Wide load(const float* from) { return wide_load(from); }
  static Wide load_some(const float* from, int64_t count) { return wide_load_some(from, count); }
  static void store(float* to, Wide value) { wide_store(to, value); }
  static void store_some(float* to, Wide value, int64_t count) { wide_store_some(to, value, count); }
  static Wide set(float x) { return wide_set(x); }
  static Wide fma(Wide a, Wide b, Wide c) { return wide_fma(a, b, c); }
};

}  // namespace
}  // namespace inferno
