#include "parity_cases.h"

#include <fmt/format.h>

#include <memory>
#include <span>

#include "model_shapes.h"
#include "verify/op_cases.h"

namespace inferno::testing {
namespace {

constexpr int64_t kHeadRows = 100'000;  // a matrix with more rows is an output head
constexpr int32_t kDepth = 700;         // cached positions of a decode step: three spans
constexpr int32_t kPageSize = 64;

// 1 ... 8 tokens: a step of a few sequences. 32 and more: prompts.
constexpr int64_t kTokens[] = {1, 2, 4, 8, 32, 128, 256};
constexpr int64_t kQuickTokens[] = {1, 32};

std::string_view plural(int64_t count) {
  return count == 1 ? "" : "s";
}

// Every op, with the registry's cases: sizes around the thresholds below which work stays on one thread.
void add_registry(std::vector<ParityCase>& cases) {
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpId>(i);
    for (OpCase& c : op_cases(op)) {
      auto image = std::make_shared<OpImage>(std::move(c.image));
      cases.push_back({.name = fmt::format("{}: {}", op_name(op), c.name), .make = [image] { return image->clone(); }});
    }
  }
}

// quantize, multiply, add the bias: one op.
void add_products(std::vector<ParityCase>& cases, const ModelShape& model, bool quick) {
  for (const MatrixShape& matrix : matrices_of(model)) {
    const bool head = matrix.rows > kHeadRows;
    if (quick && matrix.rows * matrix.cols > 6'000'000) continue;
    for (const DType dtype : kShapeTypes) {
      if (!fits(dtype, matrix.cols)) continue;
      for (const int64_t tokens : quick ? std::span<const int64_t>(kQuickTokens) : std::span<const int64_t>(kTokens)) {
        for (const bool bias : {false, true}) {
          if (head && bias && tokens > 1) continue;  // no head has one
          cases.push_back(
              {.name = fmt::format("{} {}, {}x{} {}, {} token{}{}", model.name, matrix.name, matrix.rows, matrix.cols,
                                   dtype_name(dtype), tokens, plural(tokens), bias ? ", bias" : ""),
               .timed = true,
               .make = [matrix, dtype, tokens, bias] {
                 return linear_case(
                     {.tokens = tokens, .k = matrix.cols, .n = {matrix.rows}, .weight = dtype, .bias = bias}, 1);
               }});
        }
      }
    }
  }
}

AttentionShape attention_of(const ModelShape& model, int64_t tokens, DType kv) {
  // Few tokens: one of each sequence. Many: a prompt after some cached positions.
  std::vector<SequenceShape> sequences;
  if (tokens <= 8) {
    for (int64_t i = 0; i < tokens; ++i) sequences.push_back({.cached = kDepth - static_cast<int32_t>(i) * 60});
  } else {
    sequences.push_back({.cached = 100, .queries = static_cast<int32_t>(tokens)});
  }
  return {.sequences = sequences,
          .q_heads = model.q_heads,
          .kv_heads = model.kv_heads,
          .head_dim = model.head_dim,
          .page_size = kPageSize,
          .kv = kv};
}

// The ops of a decoder.
void add_layer(std::vector<ParityCase>& cases, const ModelShape& model, bool quick) {
  const auto add = [&](std::string_view op, int64_t tokens, DType dtype, std::function<OpImage()> make) {
    cases.push_back(
        {.name = fmt::format("{} {}, {}, {} token{}", model.name, op, dtype_name(dtype), tokens, plural(tokens)),
         .timed = true,
         .make = std::move(make)});
  };
  for (const int64_t tokens : quick ? std::span<const int64_t>(kQuickTokens) : std::span<const int64_t>(kTokens)) {
    for (const DType dtype : {DType::q8_0, DType::q5_0, DType::f16, DType::q4_k, DType::q6_k}) {
      if (quick && dtype != DType::q8_0) continue;
      if (!fits(dtype, model.width)) continue;
      add("qkv_rope_store", tokens, dtype, [&model, tokens, dtype] {
        return qkv_case({.attention = attention_of(model, tokens, DType::bf16),
                         .width = model.width,
                         .weight = dtype,
                         .bias = model.bias,
                         .qk_norm = model.qk_norm},
                        2);
      });
      add("gated_mlp", tokens, dtype, [&model, tokens, dtype] {
        return mlp_case({.tokens = tokens, .width = model.width, .ffn = model.ffn, .weight = dtype, .down = dtype}, 3);
      });
    }
    for (const DType kv : {DType::f32, DType::f16, DType::bf16, DType::q8_0}) {
      if (quick && kv != DType::bf16) continue;
      add("attention", tokens, kv, [&model, tokens, kv] { return attention_case(attention_of(model, tokens, kv), 4); });
    }
  }
  if (quick) return;
  add("logits", 2, DType::q8_0, [&model] {
    return logits_case(
        {.tokens = 9, .rows = {3, 8}, .width = model.width, .vocabulary = model.vocabulary, .weight = DType::q8_0}, 5);
  });
}

}  // namespace

std::vector<ParityCase> parity_cases(bool quick) {
  std::vector<ParityCase> cases;
  add_registry(cases);
  for (const ModelShape* model : kModels) {
    add_products(cases, *model, quick);
    add_layer(cases, *model, quick);
  }
  return cases;
}

}  // namespace inferno::testing
