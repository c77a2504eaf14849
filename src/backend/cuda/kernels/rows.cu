// Kernels that work row by row: embedding, norm, conversions for matrix products, repacking of weights.
#include <algorithm>

#include "backend/cuda/kernels/formats.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace inferno::cuda {
namespace {

constexpr int kThreads = 256;

int64_t blocks_for(int64_t items, int64_t per_block) {
  return divide_up(items, per_block);
}

// ---- embed: one block per token

template <DType F>
__global__ void embed_kernel(Planes table, const int32_t* ids, int64_t vocabulary, int cols, float scale, float* out) {
  // Kernels after this one read what the one before it fetched, some before their own wait: they start later.
  wait_for_previous();
  let_next_start();
  const int token = static_cast<int>(blockIdx.x);
  // The host checks ids it knows; one drawn on the device is always inside. Another rank has the row of -1.
  const int32_t id = __ldcg(ids + token);
  const int64_t row = min(max(static_cast<int64_t>(id), int64_t{0}), vocabulary - 1);
  float* to = out + int64_t{token} * cols;
  if (id < 0) {
    for (int i = static_cast<int>(threadIdx.x); i < cols; i += kThreads) to[i] = 0;
    return;
  }
  if constexpr (F == DType::f32 || F == DType::f16 || F == DType::bf16) {
    const uint8_t* from = table.q + row * table.row_stride;
    for (int i = static_cast<int>(threadIdx.x); i < cols; i += kThreads) {
      if constexpr (F == DType::f32) to[i] = reinterpret_cast<const float*>(from)[i] * scale;
      if constexpr (F == DType::f16) to[i] = __half2float(reinterpret_cast<const __half*>(from)[i]) * scale;
      if constexpr (F == DType::bf16) to[i] = __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(from)[i]) * scale;
    }
  } else {
    for (int g = static_cast<int>(threadIdx.x); g < table.groups; g += kThreads) {
      Part<F> part;
      part.load(global_row<F>(table, row), row_bytes_of<F>(table), g / 32, g % 32);
      float values[kGroup];
      part.values(values);
#pragma unroll
      for (int i = 0; i < kGroup; i += 4) {
        *reinterpret_cast<float4*>(to + g * kGroup + i) =
            make_float4(values[i] * scale, values[i + 1] * scale, values[i + 2] * scale, values[i + 3] * scale);
      }
    }
  }
}

// ---- norm and conversion: one block per row

template <typename T>
__global__ void prepare_rows_kernel(const float* x, const int32_t* row_ids, const float* norm, float eps, int cols,
                                    int64_t out_stride, T* out) {
  __shared__ float partial[kThreads / kWarp];
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.x;
  const auto threads = static_cast<int>(blockDim.x);
  const float* from = x + (row_ids != nullptr ? static_cast<int64_t>(row_ids[r]) : r) * cols;
  T* to = out + r * out_stride;
  const bool aligned = cols % 4 == 0 && out_stride % 8 == 0;
  constexpr int kKept = 2;  // chunks of eight kept in registers between the two passes
  float kept[kKept][8];
  float factor = 1;
  if (norm != nullptr) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kKept; ++j) {
      const int at = (j * threads + static_cast<int>(threadIdx.x)) * 8;
      load_fresh8(from + at, cols - at, aligned, kept[j]);
#pragma unroll
      for (int i = 0; i < 8; ++i) squares = fmaf(kept[j][i], kept[j][i], squares);
    }
    for (int i = kKept * threads * 8 + static_cast<int>(threadIdx.x); i < cols; i += threads) {
      const float v = load_fresh(from + i);
      squares = fmaf(v, v, squares);
    }
    factor = 1.0F / sqrtf(block_sum(squares, partial) / static_cast<float>(cols) + eps);
  }
  const auto finish = [&](int at, float* v) {
    if (norm != nullptr) {
      float w[8];
      load_fresh8(norm + at, cols - at, aligned, w);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = v[i] * factor * w[i];
    }
    if constexpr (sizeof(T) == 2) {
      if (aligned) {
        *reinterpret_cast<uint4*>(to + at) = make_uint4(pack_pair<T>(widen(narrow<T>(v[0])), widen(narrow<T>(v[1]))),
                                                        pack_pair<T>(widen(narrow<T>(v[2])), widen(narrow<T>(v[3]))),
                                                        pack_pair<T>(widen(narrow<T>(v[4])), widen(narrow<T>(v[5]))),
                                                        pack_pair<T>(widen(narrow<T>(v[6])), widen(narrow<T>(v[7]))));
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (at + i < out_stride) to[at + i] = narrow<T>(v[i]);
    }
  };
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    const int at = (j * threads + static_cast<int>(threadIdx.x)) * 8;
    if (at >= out_stride) break;
    if (norm == nullptr) load_fresh8(from + at, cols - at, aligned, kept[j]);
    finish(at, kept[j]);
  }
  for (int at = (kKept * threads + static_cast<int>(threadIdx.x)) * 8; at < out_stride; at += threads * 8) {
    float v[8];
    load_fresh8(from + at, cols - at, aligned, v);
    finish(at, v);
  }
}

// ---- elementwise

template <typename In, typename Out>
__global__ void swiglu_kernel(const In* gate, const In* up, int64_t rows, int cols, int64_t in_stride,
                              int64_t out_stride, Out* out) {
  let_next_start();
  wait_for_previous();
  constexpr int kVector = 16 / sizeof(In);
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (cols % kVector == 0 && in_stride % kVector == 0) {
    const int per_row = cols / kVector;
    const int64_t r = item / per_row;
    if (r >= rows) return;
    const int at = static_cast<int>(item % per_row) * kVector;
    const uint4 g = load_fresh_16(gate + r * in_stride + at);
    const uint4 u = load_fresh_16(up + r * in_stride + at);
    const In* gv = reinterpret_cast<const In*>(&g);
    const In* uv = reinterpret_cast<const In*>(&u);
    struct alignas(sizeof(Out) * kVector) {
      Out v[kVector];
    } o;
#pragma unroll
    for (int i = 0; i < kVector; ++i) o.v[i] = narrow<Out>(swiglu(widen(gv[i]), widen(uv[i])));
    *reinterpret_cast<decltype(o)*>(out + r * out_stride + at) = o;
    return;
  }
  for (int64_t i = item * kVector; i < min((item + 1) * kVector, rows * cols); ++i) {
    const int64_t at = i / cols * in_stride + i % cols;
    out[i / cols * out_stride + i % cols] = narrow<Out>(swiglu(widen(gate[at]), widen(up[at])));
  }
}

__global__ void add_bias_kernel(float* out, const float* bias, int64_t count, int64_t cols, int64_t stride) {
  let_next_start();
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  float* at = out + i / cols * stride + i % cols;
  *at = load_fresh(at) + bias[i % cols];
}

// ---- weights

// A thread unpacks a group; results pass through shared memory, so that adjacent threads store adjacent pieces of 16
// bytes. The next kernel starts after the wait: one beside this one does not wait for the readers of what was there.
// Of such a one, one block that waits for the kernel before is enough: the others leave their places to the next ones.
struct UnpackParams {
  UnpackTask task;
  int64_t first_block[kMaxUnpackPieces + 1] = {};  // of each piece
};
template <DType F>
__global__ void unpack_kernel(const __grid_constant__ UnpackParams p) {
  constexpr int kPieces = kGroup / 8;
  __shared__ uint4 pieces[kThreads * kPieces];
  int which = 0;
  while (which + 1 < p.task.pieces && blockIdx.x >= p.first_block[which + 1]) ++which;
  const UnpackTask::Piece& piece_of = p.task.piece[which];
  const Planes& w = piece_of.w;
  const int64_t base = (blockIdx.x - p.first_block[which]) * kThreads;
  const int64_t items = piece_of.count * w.groups;
  const auto thread = static_cast<int>(threadIdx.x);
  // Piece p of thread t is stored at (p + t / 2) % 4 of its four: no two threads of a quarter warp share a bank.
  const auto place = [](int t, int piece) { return t * kPieces + ((piece + t / 2) % kPieces); };
  Part<F> part;
  if (base + thread < items) {
    const int64_t row = (base + thread) / w.groups;
    const int g = static_cast<int>((base + thread) % w.groups);
    part.load(global_row<F>(w, piece_of.first + row), row_bytes_of<F>(w), g / 32, g % 32);
  }
  if (!p.task.beside) wait_for_previous();
  let_next_start();
  if (base + thread < items) {
    float values[kGroup];
    part.values(values);
#pragma unroll
    for (int i = 0; i < kGroup; i += 8) {
      pieces[place(thread, i / 8)] = make_uint4(pack_pair<__nv_bfloat16>(values[i], values[i + 1]),
                                                pack_pair<__nv_bfloat16>(values[i + 2], values[i + 3]),
                                                pack_pair<__nv_bfloat16>(values[i + 4], values[i + 5]),
                                                pack_pair<__nv_bfloat16>(values[i + 6], values[i + 7]));
    }
  }
  __syncthreads();
  auto* to = reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(piece_of.out) + base * kGroup);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int piece = i * kThreads + thread;
    if (base + piece / kPieces < items) to[piece] = pieces[place(piece / kPieces, piece % kPieces)];
  }
  if (p.task.beside && blockIdx.x + 1 == gridDim.x) wait_for_previous();
}

template <DType F>
__global__ void pack_kernel(const uint8_t* canonical, int64_t first, int64_t count, Planes w) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= count * w.groups) return;
  const int64_t row = item / w.groups;
  const int g = static_cast<int>(item % w.groups);
  constexpr WeightFormat kFormat = format_of(F);
  const int64_t row_bytes = int64_t{w.groups} * kGroup / kFormat.block * kFormat.bytes;
  device::pack_group<F, LevelOrder>(canonical + row * row_bytes, g, row_of(w, F, first + row));
}

// One block per row, with a thread for every eight values.
LaunchShape row_shape(int64_t rows, int64_t cols) {
  const int64_t threads = std::min<int64_t>(kThreads, divide_up<int64_t>(divide_up<int64_t>(cols, 8), kWarp) * kWarp);
  return {dim3(static_cast<unsigned>(rows)), dim3(static_cast<unsigned>(threads)), 0};
}

LaunchShape shape(int64_t blocks) {
  return {dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0};
}

}  // namespace

void launch_embed(const LaunchContext& c, const Planes& table, DType dtype, int64_t vocabulary, const int32_t* ids,
                  int tokens, int64_t cols, float scale, float* out) {
  with_dtype(dtype, [&]<DType F>() {
    launch(c, shape(tokens), embed_kernel<F>, table, ids, vocabulary, static_cast<int>(cols), scale, out);
  });
}

void launch_rms_norm(const LaunchContext& c, const float* x, const float* weight, float eps, int64_t rows, int64_t cols,
                     float* out) {
  launch(c, row_shape(rows, cols), prepare_rows_kernel<float>, x, nullptr, weight, eps, static_cast<int>(cols), cols,
         out);
}

void launch_prepare_rows(const LaunchContext& c, const float* x, const int32_t* row_ids, const float* norm, float eps,
                         int64_t rows, int64_t cols, DType dtype, int64_t out_stride, void* out) {
  const int width = static_cast<int>(cols);
  if (dtype == DType::f32) {
    launch(c, row_shape(rows, cols), prepare_rows_kernel<float>, x, row_ids, norm, eps, width, out_stride,
           static_cast<float*>(out));
  } else if (dtype == DType::f16) {
    launch(c, row_shape(rows, cols), prepare_rows_kernel<__half>, x, row_ids, norm, eps, width, out_stride,
           static_cast<__half*>(out));
  } else {
    launch(c, row_shape(rows, cols), prepare_rows_kernel<__nv_bfloat16>, x, row_ids, norm, eps, width, out_stride,
           static_cast<__nv_bfloat16*>(out));
  }
}

void launch_swiglu(const LaunchContext& c, const void* gate, const void* up, int64_t rows, int64_t cols, DType in,
                   int64_t in_stride, DType out_type, int64_t out_stride, void* out) {
  const auto run = [&]<typename In, typename Out>() {
    const int64_t items = divide_up<int64_t>(rows * cols, 16 / sizeof(In));
    launch(c, shape(blocks_for(items, kThreads)), swiglu_kernel<In, Out>, static_cast<const In*>(gate),
           static_cast<const In*>(up), rows, static_cast<int>(cols), in_stride, out_stride, static_cast<Out*>(out));
  };
  if (in == DType::bf16) {
    run.template operator()<__nv_bfloat16, __nv_bfloat16>();
  } else if (out_type == DType::f32) {
    run.template operator()<float, float>();
  } else if (out_type == DType::f16) {
    run.template operator()<float, __half>();
  } else {
    run.template operator()<float, __nv_bfloat16>();
  }
}

void launch_add_bias(const LaunchContext& c, float* out, const float* bias, int64_t rows, int64_t cols,
                     int64_t out_stride) {
  launch(c, shape(blocks_for(rows * cols, kThreads)), add_bias_kernel, out, bias, rows * cols, cols, out_stride);
}

void launch_unpack_bf16(const LaunchContext& c, const UnpackTask& task) {
  UnpackParams p;
  p.task = task;
  for (int i = 0; i < task.pieces; ++i) {
    p.first_block[i + 1] = p.first_block[i] + blocks_for(task.piece[i].count * task.piece[i].w.groups, kThreads);
  }
  with_dtype(task.dtype, [&]<DType F>() {
    if constexpr (group_bytes(F).s != 0) launch(c, shape(p.first_block[task.pieces]), unpack_kernel<F>, p);
  });
}

void launch_pack(const LaunchContext& c, const void* canonical, DType dtype, int64_t first, int64_t count,
                 const Planes& w) {
  with_dtype(dtype, [&]<DType F>() {
    if constexpr (group_bytes(F).s != 0) {
      launch(c, shape(blocks_for(count * w.groups, kThreads)), pack_kernel<F>, static_cast<const uint8_t*>(canonical),
             first, count, w);
    }
  });
}

}  // namespace inferno::cuda
