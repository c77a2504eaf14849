// The kernels of recurrent layers, written once: a table's file says with Lanes how it computes with several floats.
//
// Lanes are columns of a state, which have nothing to do with each other. A sum over the rows is two chains, one of the
// even and one of the odd rows, so that a column's bits depend neither on the columns beside it nor on the width of
// Lanes.
#pragma once

#include "backend/cpu/kernels/kernel_table.h"

namespace inferno {
namespace {

// Lanes::Vector is Lanes::kCount floats that + and * compute with, Lanes::fma(a, b, c) is a * b + c. With kWhole the
// vectors are whole, else the only one has `count` lanes.
template <typename Lanes, bool kWhole>
inline typename Lanes::Vector load_lanes(const float* from, int64_t count) {
  if constexpr (kWhole) return Lanes::load(from);
  return Lanes::load_some(from, count);
}
template <typename Lanes, bool kWhole>
inline void store_lanes(float* to, typename Lanes::Vector value, int64_t count) {
  if constexpr (kWhole) {
    Lanes::store(to, value);
  } else {
    Lanes::store_some(to, value, count);
  }
}

// Calls columns<vectors, whole>(first, count) for the columns [0, n): several vectors together, so that the chains of
// additions hide each other's latency.
inline constexpr int kColumnVectors = 4;
template <typename Lanes, typename F>
inline void for_columns(int64_t n, F columns) {
  constexpr int64_t kMany = kColumnVectors * Lanes::kCount;
  static_assert(kMany <= kMaxStateColumns);
  int64_t first = 0;
  for (; first + kMany <= n; first += kMany) columns.template operator()<kColumnVectors, true>(first, kMany);
  for (; first + Lanes::kCount <= n; first += Lanes::kCount) {
    columns.template operator()<1, true>(first, Lanes::kCount);
  }
  if (first < n) columns.template operator()<1, false>(first, n - first);
}

// Columns of a state while tokens pass. Those of several tokens are moved into scratch memory, side by side: rows of a
// state are often a power of two apart, where few sets of a cache hold all of its columns.
template <typename Lanes, int kVectors, bool kWhole>
class StateColumns {
 public:
  StateColumns(float* state, int64_t rows, int64_t stride, int64_t count, int64_t tokens, float* scratch)
      : state_(state), rows_(rows), state_stride_(stride), count_(kWhole ? kVectors * Lanes::kCount : count) {
    if (tokens > 1) {
      at_ = scratch;
      stride_ = count_;
      copy(state, stride, at_, stride_);
    }
  }
  ~StateColumns() {
    if (at_ != state_) copy(at_, stride_, state_, state_stride_);
  }
  StateColumns(const StateColumns&) = delete;
  StateColumns& operator=(const StateColumns&) = delete;

  float* row(int64_t index) const { return at_ + index * stride_; }

 private:
  void copy(const float* from, int64_t from_stride, float* to, int64_t to_stride) const {
    constexpr size_t kBytes = kVectors * Lanes::kCount * sizeof(float);
    for (int64_t row = 0; row < rows_; ++row, from += from_stride, to += to_stride) {
      __builtin_memcpy(to, from, kWhole ? kBytes : static_cast<size_t>(count_) * sizeof(float));
    }
  }

  float* state_;
  int64_t rows_;
  int64_t state_stride_;
  int64_t count_;
  float* at_ = state_;
  int64_t stride_ = state_stride_;
};

template <typename Lanes, int kVectors, bool kWhole>
inline void delta_columns(const DeltaTask& task, int64_t first, int64_t count) {
  using Vector = typename Lanes::Vector;
  const int64_t d = task.head_dim;
  const auto load = [&](const float* from) { return load_lanes<Lanes, kWhole>(from, count); };
  const StateColumns<Lanes, kVectors, kWhole> state(task.state + first, d, d, count, task.tokens, task.scratch);
  for (int64_t t = 0; t < task.tokens; ++t) {
    const float* k = task.k + t * d;
    const float* q = task.q + t * d;
    Vector seen[2][kVectors] = {};
    for (int64_t j = 0; j < d; j += 2) {
      for (int64_t odd = 0; odd < 2; ++odd) {
        const float* row = state.row(j + odd);
        const Vector key = Lanes::set(k[j + odd]);
        for (int64_t i = 0; i < kVectors; ++i) {
          seen[odd][i] = Lanes::fma(key, load(row + i * Lanes::kCount), seen[odd][i]);
        }
      }
    }
    const Vector decay = Lanes::set(task.decay[t]);
    const Vector beta = Lanes::set(task.beta[t]);
    Vector change[kVectors];
    for (int64_t i = 0; i < kVectors; ++i) {
      const Vector value = load(task.v + t * task.v_stride + first + i * Lanes::kCount);
      change[i] = beta * (value - decay * (seen[0][i] + seen[1][i]));
    }
    Vector out[2][kVectors] = {};
    for (int64_t j = 0; j < d; j += 2) {
      for (int64_t odd = 0; odd < 2; ++odd) {
        float* row = state.row(j + odd);
        const Vector key = Lanes::set(k[j + odd]);
        const Vector query = Lanes::set(q[j + odd]);
        for (int64_t i = 0; i < kVectors; ++i) {
          const Vector next = Lanes::fma(key, change[i], decay * load(row + i * Lanes::kCount));
          store_lanes<Lanes, kWhole>(row + i * Lanes::kCount, next, count);
          out[odd][i] = Lanes::fma(query, next, out[odd][i]);
        }
      }
    }
    float* to = task.out + t * task.out_stride + first;
    for (int64_t i = 0; i < kVectors; ++i) {
      store_lanes<Lanes, kWhole>(to + i * Lanes::kCount, out[0][i] + out[1][i], count);
    }
  }
}

template <typename Lanes>
inline void delta_rule(const DeltaTask& task) noexcept {
  for_columns<Lanes>(task.head_dim, [&]<int kVectors, bool kWhole>(int64_t first, int64_t count) {
    delta_columns<Lanes, kVectors, kWhole>(task, first, count);
  });
}

template <typename Lanes, int kVectors, bool kWhole>
inline void scan_columns(const ScanTask& task, int64_t first, int64_t count) {
  using Vector = typename Lanes::Vector;
  const auto load = [&](const float* from) { return load_lanes<Lanes, kWhole>(from, count); };
  const StateColumns<Lanes, kVectors, kWhole> state(task.state + first, task.state_size, task.head_dim, count,
                                                    task.tokens, task.scratch);
  for (int64_t t = 0; t < task.tokens; ++t) {
    const float* b = task.b + t * task.stride;
    const float* c = task.c + t * task.stride;
    const Vector decay = Lanes::set(task.decay[t]);
    const Vector step = Lanes::set(task.step[t]);
    Vector x[kVectors];
    Vector change[kVectors];
    for (int64_t i = 0; i < kVectors; ++i) {
      x[i] = load(task.x + t * task.stride + first + i * Lanes::kCount);
      change[i] = step * x[i];
    }
    Vector out[2][kVectors] = {};
    const auto row = [&](int64_t n, Vector* sums) {
      float* at = state.row(n);
      const Vector in = Lanes::set(b[n]);
      const Vector by = Lanes::set(c[n]);
      for (int64_t i = 0; i < kVectors; ++i) {
        const Vector next = Lanes::fma(in, change[i], decay * load(at + i * Lanes::kCount));
        store_lanes<Lanes, kWhole>(at + i * Lanes::kCount, next, count);
        sums[i] = Lanes::fma(by, next, sums[i]);
      }
    };
    int64_t n = 0;
    for (; n + 2 <= task.state_size; n += 2) {
      row(n, out[0]);
      row(n + 1, out[1]);
    }
    if (n < task.state_size) row(n, out[0]);
    const Vector skip = Lanes::set(task.skip);
    float* to = task.out + t * task.out_stride + first;
    for (int64_t i = 0; i < kVectors; ++i) {
      store_lanes<Lanes, kWhole>(to + i * Lanes::kCount, Lanes::fma(skip, x[i], out[0][i] + out[1][i]), count);
    }
  }
}

template <typename Lanes>
inline void state_scan(const ScanTask& task) noexcept {
  for_columns<Lanes>(task.head_dim, [&]<int kVectors, bool kWhole>(int64_t first, int64_t count) {
    scan_columns<Lanes, kVectors, kWhole>(task, first, count);
  });
}

template <typename Lanes>
inline void convolve(const float* const* inputs, const float* weight, int64_t taps, float* out, int64_t n) noexcept {
  for_columns<Lanes>(n, [&]<int kVectors, bool kWhole>(int64_t first, int64_t count) {
    typename Lanes::Vector sums[kVectors] = {};
    for (int64_t tap = 0; tap < taps; ++tap) {
      const float* input = inputs[tap] + first;
      const float* factor = weight + tap * n + first;
      for (int64_t i = 0; i < kVectors; ++i) {
        sums[i] = Lanes::fma(load_lanes<Lanes, kWhole>(factor + i * Lanes::kCount, count),
                             load_lanes<Lanes, kWhole>(input + i * Lanes::kCount, count), sums[i]);
      }
    }
    for (int64_t i = 0; i < kVectors; ++i) store_lanes<Lanes, kWhole>(out + first + i * Lanes::kCount, sums[i], count);
  });
}

template <typename Lanes>
inline void fill_recurrent(KernelTable& table) {
  table.delta_rule = delta_rule<Lanes>;
  table.state_scan = state_scan<Lanes>;
  table.convolve = convolve<Lanes>;
}

}  // namespace
}  // namespace inferno
