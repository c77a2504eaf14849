// What inferno's kernels make of random inputs, on standard output, for compare_kernels.py to compare with llama.cpp.
//
// For each case: the length of a JSON head as 8 little-endian bytes, the head, then the bytes of its tensors in the
// head's order. Head: {"name", "op", attributes, "tensors": [{"name", "type", "shape"}]}; shapes are rows first,
// weights as stored in a GGUF file. The last tensor is the result.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/select.h"
#include "base/error.h"
#include "threadpool/model_shapes.h"
#include "verify/case_data.h"
#include "verify/op_cases.h"

namespace inferno::testing {
namespace {

using Json = nlohmann::ordered_json;

constexpr float kEps = 1e-6F;
constexpr double kRopeBase = 10000.0;  // of CaseData::rope

class Case {
 public:
  Case(const std::string& name, const char* op, Json attributes) : head_(std::move(attributes)) {
    head_["name"] = name;
    head_["op"] = op;
    head_["tensors"] = Json::array();
  }
  void add(const char* name, DType dtype, const std::vector<int64_t>& shape, const void* data, size_t bytes) {
    head_["tensors"].push_back({{"name", name}, {"type", dtype_name(dtype)}, {"shape", shape}});
    const auto* begin = static_cast<const char*>(data);
    bytes_.insert(bytes_.end(), begin, begin + bytes);
  }
  void add(const char* name, const Tensor& t) {
    add(name, t.dtype, {t.rows(), t.cols()}, t.data, static_cast<size_t>(t.bytes()));
  }
  void add(const char* name, const Weight& w) {
    const auto row = static_cast<size_t>(row_bytes(w.dtype(), w.cols()));
    std::vector<std::byte> canonical(static_cast<size_t>(w.rows()) * row);
    for (int64_t r = 0; r < w.rows(); ++r) {
      w.read_row(r, std::span(canonical).subspan(static_cast<size_t>(r) * row, row));
    }
    add(name, w.dtype(), {w.rows(), w.cols()}, canonical.data(), canonical.size());
  }
  void write() const {
    const std::string head = head_.dump();
    const uint64_t length = head.size();
    const auto put = [](const void* data, size_t bytes) {
      if (std::fwrite(data, 1, bytes, stdout) != bytes) fail("cannot write the results: the reader is gone");
    };
    put(&length, sizeof length);
    put(head.data(), head.size());
    put(bytes_.data(), bytes_.size());
  }

 private:
  Json head_;
  std::vector<char> bytes_;
};

void write_linear(Backend& backend, const ModelShape& model, const MatrixShape& matrix, DType dtype, int64_t tokens,
                  bool bias) {
  const OpImage image =
      linear_case({.tokens = tokens, .k = matrix.cols, .n = {matrix.rows}, .weight = dtype, .bias = bias}, 1);
  const OpImage result = run_on(backend, image);
  const auto& args = image.record().args<LinearArgs>();
  Case c(fmt::format("{} {} {}x{}, {} token{}{}", model.name, matrix.name, matrix.rows, matrix.cols, tokens,
                     tokens == 1 ? "" : "s", bias ? ", bias" : ""),
         "linear", Json::object());
  c.add("w", *args.w[0]);
  c.add("x", args.x);
  if (bias) c.add("bias", *args.bias[0]);
  c.add("out", result.record().args<LinearArgs>().out[0]);
  c.write();
}

void write_vector_ops(Backend& backend, const ModelShape& model, int64_t tokens) {
  const auto name = [&](const char* op) { return fmt::format("{} {}, {} tokens", model.name, op, tokens); };
  {
    OpImage image;
    CaseData d(image, 1);
    const RmsNormArgs args{d.normals({tokens, model.width}), d.vector("norm", model.width), kEps,
                           d.output({tokens, model.width})};
    image.add(args);
    const OpImage result = run_on(backend, image);
    Case c(name("rms_norm"), "rms_norm", {{"eps", kEps}});
    c.add("x", args.x);
    c.add("w", *args.weight);
    c.add("out", result.record().args<RmsNormArgs>().out);
    c.write();
  }
  {
    OpImage image;
    CaseData d(image, 2);
    const SiluArgs args{d.normals({tokens, model.ffn}, 4), d.output({tokens, model.ffn})};
    image.add(args);
    const OpImage result = run_on(backend, image);
    Case c(name("silu"), "silu", Json::object());
    c.add("x", args.x);
    c.add("out", result.record().args<SiluArgs>().out);
    c.write();
  }
  {
    OpImage image;
    CaseData d(image, 3);
    const SoftmaxRowsArgs args{d.normals({tokens, 700}, 5), d.output({tokens, 700})};
    image.add(args);
    const OpImage result = run_on(backend, image);
    Case c(name("softmax_rows"), "softmax", Json::object());
    c.add("x", args.x);
    c.add("out", result.record().args<SoftmaxRowsArgs>().out);
    c.write();
  }
  for (const RopePairing pairing : {RopePairing::half_split, RopePairing::interleaved}) {
    OpImage image;
    CaseData d(image, 4);
    const bool half = pairing == RopePairing::half_split;
    const ApplyRopeArgs args{d.normals({tokens, int64_t{model.q_heads} * model.head_dim}), d.ints_below(tokens, 1000),
                             model.head_dim, d.rope(1000, model.head_dim, pairing)};
    image.add(args);
    const OpImage result = run_on(backend, image);
    Case c(name(half ? "apply_rope, half split" : "apply_rope, interleaved"), "rope",
           {{"base", kRopeBase}, {"head_dim", model.head_dim}, {"half_split", half}});
    c.add("x", args.x);
    c.add("positions", args.positions.view({1, tokens}));
    c.add("out", result.record().args<ApplyRopeArgs>().x);
    c.write();
  }
}

// Rows of one cache side in the order of their positions: [kv_heads * positions, head_dim].
std::vector<char> gather_cache(const AttentionArgs& a, const void* memory) {
  std::vector<char> rows;
  for (int32_t head = 0; head < a.kv.kv_heads; ++head) {
    for (int32_t p = 0; p < a.batch.kv_len[0]; ++p) {
      const int64_t slot = int64_t{a.batch.block_table[p / a.kv.page_size]} * a.kv.page_size + p % a.kv.page_size;
      const char* row = static_cast<const char*>(memory) + a.kv.row_offset(slot, head);
      rows.insert(rows.end(), row, row + a.kv.row_bytes());
    }
  }
  return rows;
}

void write_attention(Backend& backend, const ModelShape& model, int32_t cached, int32_t queries, DType kv) {
  const OpImage image = attention_case({.sequences = {{.cached = cached, .queries = queries}},
                                        .q_heads = model.q_heads,
                                        .kv_heads = model.kv_heads,
                                        .head_dim = model.head_dim,
                                        .page_size = 64,
                                        .kv = kv},
                                       5);
  const OpImage result = run_on(backend, image);
  const auto& args = image.record().args<AttentionArgs>();
  Case c(fmt::format("{} attention, {} cached, {} quer{}", model.name, cached, queries, queries == 1 ? "y" : "ies"),
         "attention",
         {{"scale", args.scale}, {"head_dim", model.head_dim}, {"kv_heads", model.kv_heads}, {"cached", cached}});
  c.add("q", args.q);
  const int64_t rows = int64_t{model.kv_heads} * (cached + queries);
  for (const auto& [name, memory] : {std::pair{"k", args.kv.k}, std::pair{"v", args.kv.v}}) {
    const std::vector<char> bytes = gather_cache(args, memory);
    c.add(name, kv, {rows, model.head_dim}, bytes.data(), bytes.size());
  }
  c.add("out", result.record().args<AttentionArgs>().out);
  c.write();
}

void write_all() {
  CpuBackend backend("parallel", best_kernels(), std::make_unique<ThreadPool>(), DType::bf16);
  for (const ModelShape* model : kModels) {
    for (const MatrixShape& matrix : matrices_of(*model)) {
      for (const DType dtype : kShapeTypes) {
        if (!fits(dtype, matrix.cols)) continue;
        write_linear(backend, *model, matrix, dtype, 1, false);
        if (matrix.rows == model->vocabulary) continue;
        write_linear(backend, *model, matrix, dtype, 1, true);
        write_linear(backend, *model, matrix, dtype, 32, true);
      }
    }
    write_vector_ops(backend, *model, 32);
    for (const DType kv : {DType::f32, DType::f16}) {
      write_attention(backend, *model, 700, 1, kv);
      write_attention(backend, *model, 100, 32, kv);
    }
  }
}

}  // namespace
}  // namespace inferno::testing

int main() {
  try {
    inferno::testing::write_all();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "kernel_results: {}\n", error.what());
    return 1;
  }
}
