// Times the linear and attention kernels of a table at the shapes of Qwen3-0.6B: random weights, enough of them that
// decoding streams from memory. Prints the median of several runs and its share of the machine's limit.
//
//   kernels_bench [--isa neon_i8mm] [--types q8_0,q4_k] [--tokens 1,4,512] [--threads 1] [--attention]
#include <fmt/core.h>

#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "backend/cpu/cpu_weight.h"
#include "backend/cpu/kernels/select.h"
#include "base/checked.h"
#include "base/error.h"
#include "tensor/dtype.h"
#include "threading/thread_pool.h"

namespace inferno {
namespace {

struct Options {
  std::string isa;
  std::vector<std::string> types;
  std::vector<int64_t> tokens = {1, 4, 16, 512};
  int threads = 1;
  int repeat = 7;
  bool attention = false;
  bool cpu_time = false;
  double read_limit = 36.0;     // GB/s of one thread
  double multiply_limit = 665;  // 8-bit GOP/s of one thread
};

// q, k, v, o, gate, up, down of one layer: rows x columns.
struct Shape2 {
  int64_t rows;
  int64_t k;
};
constexpr Shape2 kLayer[] = {{2048, 1024}, {1024, 1024}, {1024, 1024}, {1024, 2048},
                             {3072, 1024}, {3072, 1024}, {1024, 3072}};
constexpr int kModelLayers = 28;
// More than the last cache holds.
constexpr int64_t kStreamBytes = int64_t{192} << 20;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double cpu_seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// For a busy machine: the minimum CPU time of this thread, in which waiting for the CPU does not count.
double min_cpu_seconds(int repeat, const std::function<void()>& work) {
  double least = INFINITY;
  for (int i = 0; i <= repeat; ++i) {
    const double start = cpu_seconds_now();
    work();
    least = std::min(least, cpu_seconds_now() - start);
  }
  return least;
}

double median_seconds(int repeat, const std::function<void()>& work) {
  work();
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) {
    const double start = seconds_now();
    work();
    times.push_back(seconds_now() - start);
  }
  std::nth_element(times.begin(), times.begin() + repeat / 2, times.end());
  return times[static_cast<size_t>(repeat / 2)];
}

class Random {
 public:
  uint32_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<uint32_t>(state_ >> 33);
  }
  float uniform() { return static_cast<float>(next()) * 0x1p-30F - 1.0F; }

 private:
  uint64_t state_ = 1;
};

struct Matrix {
  Shape2 shape;
  AlignedMemory memory;
  int64_t bytes;
};

// Packed weights with random levels. Scales of random bits could be NaN, so blocks are packed from canonical rows whose
// 16-bit words are small half floats.
Matrix random_matrix(const LinearKernel& kernel, DType dtype, Shape2 shape, Random& random) {
  const WeightLayout& layout = *kernel.weight;
  const int64_t row = row_bytes(dtype, shape.k);
  const int64_t group = layout.group_bytes(shape.k);
  const int64_t groups = ceil_div(shape.rows, layout.row_group);
  Matrix matrix{shape, aligned_memory(static_cast<size_t>(groups * group)), groups * group};
  std::vector<uint16_t> rows(static_cast<size_t>(layout.row_group * row + 1) / 2);
  for (uint16_t& word : rows) word = static_cast<uint16_t>(0x2000 | (random.next() & 0x8fff));
  for (int64_t g = 0; g < groups; ++g) {
    layout.pack(rows.data(), layout.row_group, shape.k, matrix.memory.get() + g * group);
  }
  return matrix;
}

void bench_linear(const KernelTable& table, DType dtype, const Options& options, ThreadPool& pool) {
  const LinearKernel& kernel = table.linear[static_cast<size_t>(dtype)];
  if (kernel.name == nullptr) return;
  Random random;
  std::vector<Matrix> matrices;
  int64_t bytes = 0;
  int64_t weights = 0;
  const double start = seconds_now();
  while (bytes < kStreamBytes) {
    for (const Shape2& shape : kLayer) {
      bytes += matrices.emplace_back(random_matrix(kernel, dtype, shape, random)).bytes;
      weights += shape.rows * shape.k;
    }
  }
  const double packed = seconds_now() - start;
  const auto layers = static_cast<double>(matrices.size() / std::size(kLayer));
  fmt::print("{:5} {:14} pack {:5.2f} GB/s", dtype_name(dtype), kernel.name, static_cast<double>(bytes) / packed / 1e9);

  for (const int64_t tokens : options.tokens) {
    constexpr int64_t kMost = 3072;
    std::vector<float> x(static_cast<size_t>(tokens * kMost));
    for (float& value : x) value = random.uniform();
    std::vector<float> out(static_cast<size_t>(tokens * kMost));
    AlignedMemory activations = aligned_memory(static_cast<size_t>(kernel.activation->bytes(tokens, kMost)));
    std::vector<AlignedMemory> scratch;
    for (int i = 0; i < pool.threads(); ++i) {
      scratch.push_back(aligned_memory(static_cast<size_t>(kernel.scratch_bytes(kMost, tokens))));
    }
    // Many tokens: one layer is enough, the product is compute-bound.
    const size_t count = tokens > 32 ? std::size(kLayer) : matrices.size();
    struct Job {
      const LinearKernel& kernel;
      const std::vector<Matrix>& matrices;
      size_t count;
      int64_t tokens;
      const float* x;
      float* out;
      void* activations;
      std::vector<AlignedMemory>& scratch;
      ThreadPool& pool;
    } job{kernel, matrices, count, tokens, x.data(), out.data(), activations.get(), scratch, pool};
    const double seconds = (options.cpu_time ? min_cpu_seconds : median_seconds)(options.repeat, [&] {
      pool.dispatch(
          [](int ith, int nth, void* context) {
            const auto& j = *static_cast<Job*>(context);
            for (size_t i = 0; i < j.count; ++i) {
              const Matrix& m = j.matrices[i];
              if (ith == 0)
                j.kernel.activation->prepare(j.x, m.shape.k, j.tokens, m.shape.k, 0, j.tokens, j.activations);
              if (nth > 1) j.pool.barrier();
              const int64_t steps = ceil_div(m.shape.rows, j.kernel.row_step);
              const int64_t begin = steps * ith / nth * j.kernel.row_step;
              const int64_t end = std::min(m.shape.rows, steps * (ith + 1) / nth * j.kernel.row_step);
              j.kernel.run({m.memory.get(), j.activations, m.shape.k, j.tokens, begin, end, j.out, m.shape.rows, false,
                            j.scratch[static_cast<size_t>(ith)].get()});
              if (nth > 1) j.pool.barrier();
            }
          },
          &job);
    });
    const double share = static_cast<double>(count) / static_cast<double>(matrices.size());
    const double model_seconds = seconds / (layers * share) * kModelLayers;
    if (tokens < 4) {
      const double rate = static_cast<double>(bytes) * share / seconds / 1e9;
      fmt::print(" | {:3}: {:5.1f} GB/s {:3.0f} %, {:4.0f} tok/s", tokens, rate,
                 100 * rate / options.read_limit / options.threads, static_cast<double>(tokens) / model_seconds);
    } else {
      const double rate = 2.0 * static_cast<double>(weights) * share * static_cast<double>(tokens) / seconds / 1e9;
      fmt::print(" | {:3}: {:5.1f} GOP/s {:3.0f} %, {:4.0f} tok/s", tokens, rate,
                 100 * rate / options.multiply_limit / options.threads, static_cast<double>(tokens) / model_seconds);
    }
    std::fflush(stdout);
  }
  fmt::print("\n");
}

// One query block against kDepth cached positions: decoding (the group's two heads of one token) and prefill. Caches of
// several layers, so that decoding streams from memory.
void bench_attention(const KernelTable& table, DType dtype, const Options& options) {
  const AttentionKernel& kernel = table.attention[static_cast<size_t>(dtype)];
  if (kernel.name == nullptr) return;
  constexpr int64_t kDepth = 4096;
  constexpr int64_t kHeadDim = 128;
  constexpr int64_t kGroup = 2;
  constexpr int64_t kHeads = 64;  // 8 layers of 8
  const int64_t row = row_bytes(dtype, kHeadDim);
  const int64_t head_bytes = kDepth * row;
  AlignedMemory cache = aligned_memory(static_cast<size_t>(2 * kHeads * head_bytes));
  Random random;
  std::vector<float> values(kHeadDim);
  for (int64_t i = 0; i < 2 * kHeads * kDepth; ++i) {
    if (i < 64) {
      for (float& value : values) value = random.uniform();
    }
    table.store_row[static_cast<size_t>(dtype)](values.data(), cache.get() + i * row, kHeadDim);
  }
  fmt::print("{:5} {:14}", dtype_name(dtype), kernel.name);
  for (const int64_t queries : {kGroup, kernel.query_block}) {
    std::vector<float> q(static_cast<size_t>(queries * kHeadDim));
    for (float& value : q) value = random.uniform();
    std::vector<float> m(static_cast<size_t>(queries));
    std::vector<float> l(static_cast<size_t>(queries));
    std::vector<float> o(static_cast<size_t>(queries * kHeadDim));
    const std::vector<int32_t> visible(static_cast<size_t>(queries), static_cast<int32_t>(kAttentionSpan));
    AlignedMemory scratch = aligned_memory(static_cast<size_t>(kernel.scratch_bytes(queries, kHeadDim)));
    const int64_t heads = queries == kGroup ? kHeads : 2;
    const double seconds = (options.cpu_time ? min_cpu_seconds : median_seconds)(options.repeat, [&] {
      for (int64_t head = 0; head < heads; ++head) {
        for (int64_t p = 0; p < kDepth; p += kAttentionSpan) {
          const void* k = cache.get() + 2 * head * head_bytes + p * row;
          const void* v = cache.get() + (2 * head + 1) * head_bytes + p * row;
          SpanTask task{};
          task.q = q.data();
          task.group = kGroup;
          task.token_stride = kGroup * kHeadDim;
          task.queries = queries;
          task.head_dim = kHeadDim;
          task.visible = visible.data();
          task.k_pages = &k;
          task.v_pages = &v;
          task.page_size = kAttentionSpan;
          task.row_bytes = row;
          task.scale = 0.1F;
          task.m = m.data();
          task.l = l.data();
          task.o = o.data();
          task.scratch = scratch.get();
          kernel.run(task);
        }
      }
    });
    if (queries == kGroup) {
      const double rate = static_cast<double>(2 * heads * head_bytes) / seconds / 1e9;
      fmt::print(" | {} queries: {:5.1f} GB/s {:3.0f} %", queries, rate, 100 * rate / options.read_limit);
    } else {
      const double rate = static_cast<double>(4 * heads * queries * kDepth * kHeadDim) / seconds / 1e9;
      fmt::print(" | {} queries: {:5.1f} GFLOP/s", queries, rate);
    }
    std::fflush(stdout);
  }
  fmt::print("\n");
}

void run(const Options& options) {
  const KernelTable& table = options.isa.empty() ? best_kernels() : kernels_named(options.isa);
  ThreadPool pool(ThreadPoolOptions{.threads = options.threads});
  fmt::print("table {}, {} thread(s); tok/s: 28 layers' projections alone\n", table.name, pool.threads());
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const bool wanted = options.types.empty() || std::any_of(options.types.begin(), options.types.end(),
                                                             [&](auto& t) { return dtype_from_name(t) == dtype; });
    if (!wanted) continue;
    if (options.attention) {
      bench_attention(table, dtype, options);
    } else {
      bench_linear(table, dtype, options, pool);
    }
  }
}

}  // namespace
}  // namespace inferno

int main(int argc, char** argv) {
  inferno::Options options;
  CLI::App app("kernel benchmark");
  app.add_option("--isa", options.isa, "kernel table");
  app.add_option("--types", options.types, "weight types")->delimiter(',');
  app.add_option("--tokens", options.tokens, "token counts")->delimiter(',');
  app.add_option("--threads", options.threads, "threads");
  app.add_flag("--attention", options.attention, "attention kernels instead of linear ones; types are cache types");
  app.add_option("--repeat", options.repeat, "runs; the median counts");
  app.add_flag("--cpu-time", options.cpu_time, "minimum CPU time of one thread, for a busy machine");
  app.add_option("--read-limit", options.read_limit, "GB/s one thread can read");
  app.add_option("--multiply-limit", options.multiply_limit, "8-bit GOP/s of one thread");
  CLI11_PARSE(app, argc, argv);
  try {
    inferno::run(options);
  } catch (const inferno::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
