// Fused ops against the same work op by op: bit parity and speed-up.
//
//   fusion_gemv [--tokens 1,8,128] [--threads N] [--types Q8_0,Q5_0,F16,Q4_K,Q6_K]
//
// Fused: the input is converted once for all weights that read it, and bias, residual and SwiGLU are applied by the
// thread that has just computed the rows. Both sides run the same kernels on the same pool; the unfused side as one
// step with an op for each part, as a decoder without fused ops would record it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/select.h"
#include "base/error.h"
#include "base/guarded_main.h"
#include "model_shapes.h"
#include "synthetic/random_weight.h"
#include "threading/thread_plan.h"
#include "timing.h"

namespace inferno::testing {
namespace {

constexpr int kRounds = 9;

// One layer's weights and buffers, and the two ways through each part of it.
class Layer {
 public:
  Layer(CpuBackend& backend, const ModelShape& model, DType dtype, int64_t tokens)
      : backend_(backend), model_(model), dtype_(dtype), tokens_(tokens) {}

  struct Part {
    std::string name;
    std::function<void()> fused;
    std::function<void()> unfused;
    std::vector<std::pair<Tensor, Tensor>> results;  // fused, unfused
  };

  std::vector<Part> parts() { return {bias_and_residual(), shared_input(), swiglu(), mlp()}; }

  void step(StepMode mode, const std::function<void()>& ops) {
    backend_.begin_step(mode);
    ops();
    backend_.end_step();
  }

 private:
  // x w^T + residual + bias
  Part bias_and_residual() {
    const int64_t q = int64_t{model_.q_heads} * model_.head_dim;
    const Tensor x = input(q);
    const Tensor residual = input(model_.width);
    const Weight* w = matrix(model_.width, q);
    const Weight* bias = vector(model_.width);
    const Tensor bias_row = tensor(1, model_.width).view(Shape(model_.width));
    std::memcpy(bias_row.data, static_cast<const CpuWeight*>(bias)->vector(), static_cast<size_t>(bias_row.bytes()));
    const Tensor fused = tensor(tokens_, model_.width);
    const Tensor unfused = tensor(tokens_, model_.width);
    return {"product + residual + bias",
            [=, this] { backend_.linear({.x = x, .w = {w}, .bias = {bias}, .residual = residual, .out = {fused}}); },
            [=, this] {
              backend_.linear({.x = x, .w = {w}, .out = {unfused}});
              backend_.add({residual, unfused, unfused});
              backend_.add({unfused, bias_row, unfused});
            },
            {{fused, unfused}}};
  }

  // Three products of one input.
  Part shared_input() {
    const int64_t rows[] = {int64_t{model_.q_heads} * model_.head_dim, int64_t{model_.kv_heads} * model_.head_dim,
                            int64_t{model_.kv_heads} * model_.head_dim};
    const Tensor x = input(model_.width);
    LinearArgs together{.x = x};
    std::vector<LinearArgs> apart;
    Part part{.name = "q, k, v of one input", .fused = {}, .unfused = {}, .results = {}};
    for (size_t i = 0; i < std::size(rows); ++i) {
      together.w[i] = matrix(rows[i], model_.width);
      together.out[i] = tensor(tokens_, rows[i]);
      apart.push_back({.x = x, .w = {together.w[i]}, .out = {tensor(tokens_, rows[i])}});
      part.results.emplace_back(together.out[i], apart[i].out[0]);
    }
    part.fused = [=, this] { backend_.linear(together); };
    part.unfused = [=, this] {
      for (const LinearArgs& args : apart) backend_.linear(args);
    };
    return part;
  }

  // silu(gate) * up
  Part swiglu() {
    const Tensor x = input(model_.width);
    const Weight* gate = matrix(model_.ffn, model_.width);
    const Weight* up = matrix(model_.ffn, model_.width);
    const Tensor fused = tensor(tokens_, model_.ffn);
    const Tensor unfused = tensor(tokens_, model_.ffn);
    const Tensor other = tensor(tokens_, model_.ffn);
    return {"gate, up, SwiGLU",
            [=, this] { backend_.linear({.x = x, .w = {gate, up}, .epilogue = Epilogue::swiglu, .out = {fused}}); },
            [=, this] {
              backend_.linear({.x = x, .w = {gate}, .out = {unfused}});
              backend_.linear({.x = x, .w = {up}, .out = {other}});
              backend_.silu({unfused, unfused});
              backend_.hadamard({unfused, other, unfused});
            },
            {{fused, unfused}}};
  }

  // norm, gate, up, SwiGLU, down, residual
  Part mlp() {
    const Tensor x = input(model_.width);
    const Weight* norm = vector(model_.width);
    const Weight* gate = matrix(model_.ffn, model_.width);
    const Weight* up = matrix(model_.ffn, model_.width);
    const Weight* down = matrix(model_.width, model_.ffn);
    const Tensor fused = tensor(tokens_, model_.width);
    const Tensor unfused = tensor(tokens_, model_.width);
    const Tensor h = tensor(tokens_, model_.width);
    const Tensor a = tensor(tokens_, model_.ffn);
    const Tensor b = tensor(tokens_, model_.ffn);
    constexpr float kEps = 1e-6F;
    return {
        "norm + MLP + residual",
        [=, this] {
          backend_.gated_mlp(
              {.x = x, .norm = norm, .eps = kEps, .gate = gate, .up = up, .down = down, .residual = x, .out = fused});
        },
        [=, this] {
          backend_.rms_norm({x, norm, kEps, h});
          backend_.linear({.x = h, .w = {gate}, .out = {a}});
          backend_.linear({.x = h, .w = {up}, .out = {b}});
          backend_.silu({a, a});
          backend_.hadamard({a, b, a});
          backend_.linear({.x = a, .w = {down}, .out = {unfused}});
          backend_.add({x, unfused, unfused});
        },
        {{fused, unfused}}};
  }

  Tensor tensor(int64_t rows, int64_t cols) {
    Tensor t;
    t.shape = Shape(rows, cols);
    buffers_.push_back(backend_.allocate(static_cast<size_t>(rows * cols) * sizeof(float)));
    t.data = buffers_.back().data();
    std::memset(t.data, 0xff, buffers_.back().bytes());
    return t;
  }
  Tensor input(int64_t cols) {
    const Tensor t = tensor(tokens_, cols);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < t.elements(); ++i) t.f32()[i] = normal(random_);
    return t;
  }
  const Weight* matrix(int64_t rows, int64_t cols) {
    const RandomWeight source(dtype_, Shape(rows, cols), weights_.size());
    return weights_.emplace_back(backend_.load_weight(source, WeightUse::matmul)).get();
  }
  const Weight* vector(int64_t n) {
    const RandomWeight source(DType::f32, Shape(1, n), weights_.size());
    return weights_.emplace_back(backend_.load_weight(source, WeightUse::vector)).get();
  }

  CpuBackend& backend_;
  const ModelShape& model_;
  DType dtype_;
  int64_t tokens_;
  std::mt19937 random_{1};
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<Weight>> weights_;
};

bool compare(CpuBackend& backend, const ModelShape& model, DType dtype, int64_t tokens) {
  Layer layer(backend, model, dtype, tokens);
  bool all_same = true;
  for (const Layer::Part& part : layer.parts()) {
    layer.step(StepMode::plan, part.fused);
    layer.step(StepMode::plan, part.unfused);
    const auto fused = [&] { layer.step(StepMode::run, part.fused); };
    const auto unfused = [&] { layer.step(StepMode::run, part.unfused); };
    fused();
    unfused();
    bool same = true;
    for (const auto& [a, b] : part.results) {
      same = same && std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0;
    }
    // Alternating, so that a disturbance of the machine hits both.
    std::vector<double> fused_seconds;
    std::vector<double> unfused_seconds;
    for (int round = 0; round < kRounds; ++round) {
      unfused_seconds.push_back(median_seconds(3, 0.002, unfused));
      fused_seconds.push_back(median_seconds(3, 0.002, fused));
    }
    const double unfused_us = median(unfused_seconds) * 1e6;
    const double fused_us = median(fused_seconds) * 1e6;
    fmt::print("{:<11} {:<5} {:>6} {:>8}  {:<26} {:>10.1f} {:>10.1f} {:>7.2f}x  {}\n", model.name, dtype_name(dtype),
               tokens, backend.threads(), part.name, unfused_us, fused_us, unfused_us / fused_us,
               same ? "bit-identical" : "DIFFERS");
    all_same = all_same && same;
  }
  return all_same;
}

int run(int argc, char** argv) {
  CLI::App app("Fused ops against the same work op by op");
  std::vector<int64_t> tokens = {1, 8, 128};
  std::vector<std::string> types;
  int threads = available_cpu_count();
  app.add_option("--tokens", tokens, "token counts")->delimiter(',')->check(CLI::Range(1, 4096));
  app.add_option("--types", types, "weight types")->delimiter(',');
  app.add_option("--threads", threads, "threads")->check(CLI::Range(1, kMaxThreads));
  CLI11_PARSE(app, argc, argv);
  std::vector<DType> dtypes(kShapeTypes.begin(), kShapeTypes.end());
  if (!types.empty()) dtypes.clear();
  for (const std::string& name : types) {
    const std::optional<DType> dtype = dtype_from_name(name);
    if (!dtype) fail_usage("--types: unknown type {}", name);
    dtypes.push_back(*dtype);
  }
  CpuBackend backend("parallel", best_kernels(), std::make_unique<ThreadPool>(ThreadPoolOptions{.threads = threads}),
                     DType::bf16);
  fmt::print("{:<11} {:<5} {:>6} {:>8}  {:<26} {:>10} {:>10} {:>8}\n", "model", "type", "tokens", "threads", "",
             "unfused us", "fused us", "gain");
  bool same = true;
  for (const ModelShape* model : kModels) {
    for (const DType dtype : dtypes) {
      if (!fits(dtype, model->width)) continue;
      for (const int64_t count : tokens) same = compare(backend, *model, dtype, count) && same;
    }
  }
  fmt::print("{}\n", same ? "all bit-identical" : "results DIFFER");
  return same ? 0 : 1;
}

}  // namespace
}  // namespace inferno::testing

int main(int argc, char** argv) {
  return inferno::guarded_main("fusion_gemv", inferno::testing::run, argc, argv);
}
