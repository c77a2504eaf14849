// The matrix-vector products of one token of Qwen2-0.5B: on one thread, with OpenMP, and with the thread pool.
//
//   gemv_omp [--threads N] [--types Q8_0,Q5_0,F16] [--runs N]
//
// The same kernels and the same slices of rows for all, so only the threading differs, in two ways: a parallel
// region (a dispatch) for each product, or one for the whole token with a barrier after each product. The results must
// be bit-identical. The contestants alternate, so that a disturbance of the machine hits all of them. Prints
// milliseconds per token: all products of 24 layers and the output head, without attention.
#if defined(_OPENMP)
#include <omp.h>
#endif

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/cpu_weight.h"
#include "backend/cpu/kernels/select.h"
#include "base/error.h"
#include "base/guarded_main.h"
#include "model_shapes.h"
#include "synthetic/random_weight.h"
#include "threading/partition.h"
#include "threading/thread_plan.h"
#include "threading/thread_pool.h"
#include "timing.h"

namespace inferno::testing {
namespace {

struct Product {
  std::unique_ptr<CpuWeight> weight;
  int64_t out = 0;  // where its result begins
};

// All products of a token, each with the same input vector.
class Token {
 public:
  Token(const ModelShape& model, DType dtype, int threads) {
    const KernelTable& table = best_kernels();
    const int64_t q = int64_t{model.q_heads} * model.head_dim;
    const int64_t kv = int64_t{model.kv_heads} * model.head_dim;
    const auto add = [&](int64_t rows, int64_t cols) {
      const RandomWeight source(dtype, Shape(rows, cols), products_.size());
      products_.push_back({std::make_unique<CpuWeight>(source, WeightUse::matmul, table), outputs_});
      outputs_ += round_up(rows, 16);
      bytes_ += products_.back().weight->bytes();
    };
    for (int layer = 0; layer < model.layers; ++layer) {
      add(q, model.width);
      add(kv, model.width);
      add(kv, model.width);
      add(model.width, q);
      add(2 * model.ffn, model.width);
      add(model.width, model.ffn);
    }
    add(model.vocabulary, model.width);
    const int64_t longest = std::max(model.width, model.ffn);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    x_.resize(static_cast<size_t>(longest));
    for (float& value : x_) value = normal(random);
    const LinearKernel& kernel = products_.front().weight->kernel();
    for (int i = 0; i < threads; ++i) {
      activations_.push_back(aligned_memory(static_cast<size_t>(kernel.activation->bytes(1, longest))));
      scratch_.push_back(aligned_memory(static_cast<size_t>(kernel.scratch_bytes(longest, 1))));
    }
    out_ = aligned_memory(static_cast<size_t>(outputs_) * sizeof(float));
  }

  [[nodiscard]] size_t products() const { return products_.size(); }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  // This thread's rows of one product; each thread converts the input for itself, as the engine does for one token.
  void run(size_t index, int ith, int nth) const noexcept {
    const Product& product = products_[index];
    const CpuWeight& w = *product.weight;
    const LinearKernel& kernel = w.kernel();
    const Range rows = slice(w.rows(), ith, nth, kernel.row_step);
    if (rows.empty()) return;
    void* activations = activations_[static_cast<size_t>(ith)].get();
    kernel.activation->prepare(x_.data(), w.cols(), 1, w.cols(), 0, 1, activations);
    kernel.run({w.groups(), activations, w.cols(), 1, rows.begin, rows.end, results() + product.out, w.rows(), false,
                scratch_[static_cast<size_t>(ith)].get()});
  }
  void forget() const { std::memset(out_.get(), 0xff, static_cast<size_t>(outputs_) * sizeof(float)); }
  [[nodiscard]] std::vector<float> copy_results() const { return {results(), results() + outputs_}; }

 private:
  [[nodiscard]] float* results() const { return reinterpret_cast<float*>(out_.get()); }

  std::vector<Product> products_;
  std::vector<float> x_;
  std::vector<AlignedMemory> activations_;  // one per thread
  std::vector<AlignedMemory> scratch_;      // one per thread
  AlignedMemory out_;
  int64_t outputs_ = 0;
  uint64_t bytes_ = 0;
};

// What a dispatch on the pool is given.
struct Job {
  const Token& token;
  ThreadPool& pool;
  size_t product = 0;
};

struct Contestant {
  std::string name;
  std::function<void(const Token&)> run;
  std::vector<double> seconds = {};
};

std::vector<Contestant> contestants(ThreadPool& pool) {
  std::vector<Contestant> list;
  list.push_back({"one thread", [](const Token& token) {
                    for (size_t i = 0; i < token.products(); ++i) token.run(i, 0, 1);
                  }});
#if defined(_OPENMP)
  const int threads = pool.threads();
  list.push_back({"OpenMP, a region for each product", [threads](const Token& token) {
                    for (size_t i = 0; i < token.products(); ++i) {
#pragma omp parallel num_threads(threads)
                      token.run(i, omp_get_thread_num(), omp_get_num_threads());
                    }
                  }});
  list.push_back({"OpenMP, one region with barriers", [threads](const Token& token) {
#pragma omp parallel num_threads(threads)
                    for (size_t i = 0; i < token.products(); ++i) {
                      token.run(i, omp_get_thread_num(), omp_get_num_threads());
#pragma omp barrier
                    }
                  }});
#endif
  list.push_back({"pool, a dispatch for each product", [&pool](const Token& token) {
                    Job job{token, pool};
                    for (; job.product < token.products(); ++job.product) {
                      pool.dispatch(
                          [](int ith, int nth, void* context) {
                            const auto& j = *static_cast<const Job*>(context);
                            j.token.run(j.product, ith, nth);
                          },
                          &job);
                    }
                  }});
  list.push_back({"pool, one dispatch with barriers", [&pool](const Token& token) {
                    Job job{token, pool};
                    pool.dispatch(
                        [](int ith, int nth, void* context) {
                          const auto& j = *static_cast<const Job*>(context);
                          for (size_t i = 0; i < j.token.products(); ++i) {
                            j.token.run(i, ith, nth);
                            j.pool.barrier();
                          }
                        },
                        &job);
                  }});
  return list;
}

bool compare(DType dtype, ThreadPool& pool, int runs) {
  const Token token(kQwen2, dtype, pool.threads());
  std::vector<Contestant> list = contestants(pool);
  fmt::print("\n{} {}, {} threads, {} products, {:.0f} MB\n", kQwen2.name, dtype_name(dtype), pool.threads(),
             token.products(), static_cast<double>(token.bytes()) * 1e-6);
  std::vector<float> expected;
  bool same = true;
  for (Contestant& c : list) {
    token.forget();
    c.run(token);
    const std::vector<float> results = token.copy_results();
    if (expected.empty()) expected = results;
    if (std::memcmp(results.data(), expected.data(), results.size() * sizeof(float)) != 0) {
      fmt::print("  DIFFERS from one thread: {}\n", c.name);
      same = false;
    }
  }
  for (int run = 0; run < runs; ++run) {
    for (Contestant& c : list) {
      // The workers of the last contestant linger for a moment, which must not be measured.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      c.run(token);
      c.seconds.push_back(median_seconds(3, 0, [&] { c.run(token); }));
    }
  }
  double serial = 0;
  for (Contestant& c : list) {
    std::sort(c.seconds.begin(), c.seconds.end());
    const double median = c.seconds[c.seconds.size() / 2];
    if (serial == 0) serial = median;
    fmt::print("  {:<36} {:>8.3f} ms/token  ({:.3f} to {:.3f})  {:>5.2f}x  {:>5.1f} GB/s\n", c.name, median * 1e3,
               c.seconds.front() * 1e3, c.seconds.back() * 1e3, serial / median,
               static_cast<double>(token.bytes()) / median * 1e-9);
  }
  return same;
}

int run(int argc, char** argv) {
  CLI::App app("Matrix-vector products of a token: one thread, OpenMP, the thread pool");
  int threads = available_cpu_count();
  int runs = 15;
  std::vector<std::string> types = {"Q8_0", "Q5_0", "F16"};
  app.add_option("--threads", threads, "threads")->check(CLI::Range(1, kMaxThreads));
  app.add_option("--runs", runs, "rounds of each contestant, three tokens each")->check(CLI::Range(1, 1000));
  app.add_option("--types", types, "weight types")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
#if !defined(_OPENMP)
  fmt::print("this build has no OpenMP: its rows are left out\n");
#endif
  ThreadPool pool({.threads = threads, .allow_oversubscription = true});
  bool same = true;
  for (const std::string& name : types) {
    const std::optional<DType> dtype = dtype_from_name(name);
    if (!dtype || !fits(*dtype, kQwen2.width)) fail_usage("--types: {} does not fit rows of {}", name, kQwen2.width);
    same = compare(*dtype, pool, runs) && same;
  }
  fmt::print("\n{}\n", same ? "all results are bit-identical" : "results DIFFER");
  return same ? 0 : 1;
}

}  // namespace
}  // namespace inferno::testing

int main(int argc, char** argv) {
  return inferno::guarded_main("gemv_omp", inferno::testing::run, argc, argv);
}
