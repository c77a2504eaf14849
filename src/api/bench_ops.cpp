// bench_ops(): single ops at the shapes of a 0.6B model.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "api/bench.h"
#include "api/load_options.h"
#include "backend/op_cost.h"
#include "backend/op_image.h"
#include "backend/sampling.h"
#include "base/error.h"
#include "base/log.h"
#include "profile/machine_limits.h"
#include "verify/case_data.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kWidth = 1024;
constexpr int64_t kFfn = 3072;
constexpr int64_t kExperts = 64;
constexpr int32_t kExpertsUsed = 4;
constexpr int64_t kExpertFfn = 768;
constexpr int32_t kQHeads = 16;
constexpr int32_t kKvHeads = 8;
constexpr int32_t kHeadDim = 128;
constexpr int32_t kStateHeads = 16;     // of a recurrent layer, Qwen3.5's
constexpr int64_t kVocabulary = 32768;  // a fifth of the model's: enough to come from memory, quick to make
constexpr int32_t kDepth = 512;         // cached positions in decode
constexpr int32_t kPrefillTokens = 512;
constexpr int32_t kPageSize = 64;
constexpr uint32_t kSeed = 1;

// Weights of a decode op are rotated over so many bytes, as a whole model's would be: no cache keeps them.
constexpr double kRotation = 96e6;
constexpr double kShortestRun = 0.01;  // seconds

// What to build the args of an op from.
struct OpShape {
  CaseData& data;
  int64_t tokens;
  DType weight;
  DType kv;

  [[nodiscard]] bool decode() const { return tokens == 1; }
  [[nodiscard]] Shape x() const { return {tokens, kWidth}; }
  [[nodiscard]] LatentShape latent() const {
    return {.sequences = attention().sequences,
            .heads = kQHeads,
            .latent = 512,
            .kept = 256,
            .rotated = 64,
            .weight = weight,
            .kv = kv};
  }
  // Scores of one head.
  [[nodiscard]] Shape scores() const { return {tokens, decode() ? kDepth : tokens}; }
  [[nodiscard]] AttentionShape attention() const {
    return {.sequences = {{.cached = decode() ? kDepth : 0, .queries = static_cast<int32_t>(tokens)}},
            .q_heads = kQHeads,
            .kv_heads = kKvHeads,
            .head_dim = kHeadDim,
            .page_size = kPageSize,
            .kv = kv};
  }
  [[nodiscard]] Tensor normals(const Shape& shape) const { return data.normals(shape); }
  [[nodiscard]] Tensor output(const Shape& shape) const { return data.output(shape); }
};

// ---- one function per primitive, found by its args type

AddArgs make(const OpShape& s, const AddArgs& /*tag*/) {
  return {s.normals(s.x()), s.normals(s.x()), s.output(s.x())};
}
HadamardArgs make(const OpShape& s, const HadamardArgs& /*tag*/) {
  return {s.normals(s.x()), s.normals(s.x()), s.output(s.x())};
}
SiluArgs make(const OpShape& s, const SiluArgs& /*tag*/) {
  const Shape shape(s.tokens, kFfn);
  return {s.normals(shape), s.output(shape)};
}
ScaleArgs make(const OpShape& s, const ScaleArgs& /*tag*/) {
  return {s.normals(s.x()), 0.5F, s.output(s.x())};
}
AddScalarArgs make(const OpShape& s, const AddScalarArgs& /*tag*/) {
  return {s.normals(s.x()), 0.5F, s.output(s.x())};
}
RsqrtElemArgs make(const OpShape& s, const RsqrtElemArgs& /*tag*/) {
  return {s.data.positives(s.x()), s.output(s.x())};
}
SumSquaresAxisArgs make(const OpShape& s, const SumSquaresAxisArgs& /*tag*/) {
  return {s.normals(s.x()), 1, s.output(Shape(s.tokens))};
}
BroadcastRowScalarsArgs make(const OpShape& s, const BroadcastRowScalarsArgs& /*tag*/) {
  return {s.normals(Shape(s.tokens)), s.output(s.x())};
}
Transpose2dArgs make(const OpShape& s, const Transpose2dArgs& /*tag*/) {
  return {s.normals(s.x()), s.output({kWidth, s.tokens})};
}
SoftmaxRowsArgs make(const OpShape& s, const SoftmaxRowsArgs& /*tag*/) {
  return {s.normals(s.scores()), s.output(s.scores())};
}
ReshapeDataArgs make(const OpShape& s, const ReshapeDataArgs& /*tag*/) {
  return {s.normals(s.x()), s.output({s.tokens * 8, kWidth / 8})};
}
MatmulArgs make(const OpShape& s, const MatmulArgs& /*tag*/) {
  // Scores of one head times its values.
  return {s.normals(s.scores()), s.normals({s.scores().cols(), kHeadDim}), s.output({s.tokens, kHeadDim})};
}
GatherRowsArgs make(const OpShape& s, const GatherRowsArgs& /*tag*/) {
  return {.table = s.data.matrix("table", s.weight, 4096, kWidth),
          .indices = s.data.ints_below(s.tokens, 4096),
          .out = s.output(s.x())};
}
FillStrictUpperTriArgs make(const OpShape& s, const FillStrictUpperTriArgs& /*tag*/) {
  return {s.normals(s.scores()), -1e30F, s.decode() ? kDepth : 0};
}
Copy2dFromColsArgs make(const OpShape& s, const Copy2dFromColsArgs& /*tag*/) {
  return {s.normals(s.x()), kHeadDim, s.output({s.tokens, kHeadDim})};
}
Copy2dIntoColsArgs make(const OpShape& s, const Copy2dIntoColsArgs& /*tag*/) {
  return {s.normals({s.tokens, kHeadDim}), kHeadDim, s.normals(s.x())};
}
RepeatRowAsMatrixArgs make(const OpShape& s, const RepeatRowAsMatrixArgs& /*tag*/) {
  return {.x = s.normals(Shape(kWidth)), .out = s.output(s.x())};
}
ApplyRopeArgs make(const OpShape& s, const ApplyRopeArgs& /*tag*/) {
  return {s.normals({s.tokens, int64_t{kQHeads} * kHeadDim}), s.data.ints_below(s.tokens, kDepth), kHeadDim,
          s.data.rope(kDepth, kHeadDim, RopePairing::half_split)};
}
ApplyRopeSingleRowArgs make(const OpShape& s, const ApplyRopeSingleRowArgs& /*tag*/) {
  return {s.normals(Shape(int64_t{kQHeads} * kHeadDim)), kDepth - 1, kHeadDim,
          s.data.rope(kDepth, kHeadDim, RopePairing::half_split)};
}
ConcatDim0Args make(const OpShape& s, const ConcatDim0Args& /*tag*/) {
  return {s.normals(s.x()), s.normals(s.x()), s.output({2 * s.tokens, kWidth})};
}
CopyRow2dArgs make(const OpShape& s, const CopyRow2dArgs& /*tag*/) {
  return {s.normals(s.x()), s.tokens - 1, s.output(Shape(kWidth))};
}
CopyContiguousIntoArgs make(const OpShape& s, const CopyContiguousIntoArgs& /*tag*/) {
  return {s.normals(s.x()), kWidth, s.normals(Shape((s.tokens + 1) * kWidth))};
}
ArgmaxWithProbArgs make(const OpShape& s, const ArgmaxWithProbArgs& /*tag*/) {
  return {s.normals({1, kVocabulary}), s.data.output(Shape(1), DType::i32), s.output(Shape(1))};
}
KvStoreArgs make(const OpShape& s, const KvStoreArgs& /*tag*/) {
  const auto [view, batch] = s.data.cache(s.attention(), false);
  const Shape rows(s.tokens, int64_t{kKvHeads} * kHeadDim);
  return {s.normals(rows), s.normals(rows), view, batch};
}
KvLoadArgs make(const OpShape& s, const KvLoadArgs& /*tag*/) {
  const auto [view, batch] = s.data.cache(s.attention(), true);
  return {view, batch, 0, 0, false, s.output({s.decode() ? kDepth : s.tokens, kHeadDim})};
}
EmbedArgs make(const OpShape& s, const EmbedArgs& /*tag*/) {
  return {s.data.matrix("token_embd.weight", s.weight, 4096, kWidth), s.data.ints_below(s.tokens, 4096),
          s.output(s.x())};
}
RmsNormArgs make(const OpShape& s, const RmsNormArgs& /*tag*/) {
  return {s.normals(s.x()), s.data.vector("norm", kWidth), 1e-6F, s.output(s.x())};
}
SampleArgs make(const OpShape& s, const SampleArgs& /*tag*/) {
  std::vector<int32_t> greedy(sizeof(SampleRow) / 4);
  const SampleRow row;
  std::memcpy(greedy.data(), &row, sizeof row);
  return {.logits = s.normals({1, kVocabulary}),
          .rows = s.data.ints(greedy).view({1, static_cast<int64_t>(greedy.size())}),
          .out = s.data.output(Shape(1), DType::i32)};
}
AllReduceArgs make(const OpShape& s, const AllReduceArgs& /*tag*/) {
  return {.x = s.normals(s.x())};
}
PassOnArgs make(const OpShape& s, const PassOnArgs& /*tag*/) {
  return {.x = s.normals(s.x())};
}
AllGatherArgs make(const OpShape& s, const AllGatherArgs& /*tag*/) {
  const Shape shape = s.x();
  return {
      .x = s.normals(shape), .begins = s.data.ints({0, static_cast<int32_t>(shape.cols())}), .out = s.output(shape)};
}

RouteArgs make(const OpShape& s, const RouteArgs& /*tag*/) {
  const Shape shape(s.tokens, kExperts);
  return {.logits = s.normals(shape), .routing = {.used = kExpertsUsed}, .out = s.output(shape)};
}

// Nothing for ops that have cases of their own.
template <typename Args>
void fill(OpImage& image, const OpShape& shape) {
  if constexpr (requires { make(shape, Args{}); }) image.add(make(shape, Args{}));
}

OpImage make_image(OpId op, int64_t tokens, DType weight, DType kv) {
  OpImage image;
  CaseData data(image, kSeed);
  const OpShape shape{data, tokens, weight, kv};
  switch (op) {
    case OpId::linear:  // the projection out of attention
      return linear_case({.tokens = tokens,
                          .k = int64_t{kQHeads} * kHeadDim,
                          .n = {kWidth},
                          .weight = weight,
                          .residual = true,
                          .residual_is_out = true},
                         kSeed);
    case OpId::qkv_rope_store:
      return qkv_case({.attention = shape.attention(), .width = kWidth, .weight = weight, .qk_norm = true}, kSeed);
    case OpId::attention:
      return attention_case(shape.attention(), kSeed);
    case OpId::gated_mlp:
      return mlp_case({.tokens = tokens, .width = kWidth, .ffn = kFfn, .weight = weight, .down = weight}, kSeed);
    case OpId::moe_mlp:
      return moe_case({.tokens = tokens,
                       .width = kWidth,
                       .ffn = kExpertFfn,
                       .experts = kExperts,
                       .routing = {.used = kExpertsUsed},
                       .weight = weight,
                       .down = weight},
                      kSeed);
    case OpId::short_conv:
      return short_conv_case({.sequences = shape.attention().sequences, .channels = 3 * kStateHeads * kHeadDim}, kSeed);
    case OpId::delta_net:
      return delta_net_case({.sequences = shape.attention().sequences,
                             .k_heads = kStateHeads,
                             .v_heads = kStateHeads,
                             .head_dim = kHeadDim},
                            kSeed);
    case OpId::mamba2:
      return mamba2_case({.sequences = shape.attention().sequences,
                          .k_heads = 1,
                          .v_heads = kStateHeads,
                          .head_dim = kHeadDim / 2,
                          .state_size = kHeadDim},
                         kSeed);
    case OpId::layer_input:
      return layer_input_case({.tokens = tokens, .width = kWidth, .inputs = 256, .weight = weight}, kSeed);
    case OpId::latent_store:
      return latent_store_case(shape.latent(), kSeed);
    case OpId::head_linear:
      return head_linear_case(shape.latent(), kSeed);
    case OpId::logits:
      return logits_case({.tokens = tokens, .width = kWidth, .vocabulary = kVocabulary, .weight = weight}, kSeed);
    default:
      break;
  }
  switch (op) {
#define OP(name, Args)        \
  case OpId::name:            \
    fill<Args>(image, shape); \
    break;
#include "backend/op_list.inc"
    default:
      break;
  }
  return image;
}

// Types an op has kernels of its own for; other ops appear once.
std::vector<DType> types_of(OpId op) {
  switch (op) {
    case OpId::linear:
    case OpId::qkv_rope_store:
    case OpId::gated_mlp:
    case OpId::moe_mlp:
    case OpId::layer_input:
    case OpId::latent_store:
    case OpId::head_linear:
    case OpId::logits:
      return {DType::q8_0, DType::q4_0, DType::q5_0, DType::q4_k, DType::q6_k, DType::f16, DType::bf16};
    case OpId::attention:
      return {DType::bf16, DType::f16, DType::f32, DType::q8_0};
    case OpId::gather_rows:
    case OpId::embed:
      return {DType::q8_0};
    case OpId::kv_store:
    case OpId::kv_load:
      return {DType::bf16};
    default:
      return {DType::f32};
  }
}

bool reads_cache(OpId op) {
  return op == OpId::attention || op == OpId::kv_store || op == OpId::kv_load;
}

// Seconds of one run, `repeat` times.
std::vector<double> time_op(const OpImage& image, Backend& backend, size_t copies, int32_t repeat) {
  std::vector<std::unique_ptr<WeightCopies>> weights;
  std::vector<std::unique_ptr<PlacedOp>> ops;
  for (size_t i = 0; i < copies; ++i) {
    weights.push_back(std::make_unique<WeightCopies>(backend));
    ops.push_back(std::make_unique<PlacedOp>(image, backend, *weights.back()));
    ops.back()->run();
  }
  std::vector<double> seconds;
  for (int32_t r = 0; r < repeat; ++r) {
    int64_t runs = 0;
    const Clock::time_point begin = Clock::now();
    double passed = 0;
    while (passed < kShortestRun) {
      for (const auto& op : ops) op->run();
      runs += static_cast<int64_t>(copies);
      passed = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    seconds.push_back(passed / static_cast<double>(runs));
  }
  return seconds;
}

}  // namespace

std::vector<BenchRow> bench_ops(const LoadOptions& load, int32_t repeat) {
  if (repeat < 1) fail_usage("`repeat` is {}, must be 1 or more", repeat);
  const EngineOptions options = engine_options(load);
  const std::string_view name = options.backend.empty() ? default_backend_name() : std::string_view(options.backend);
  const std::unique_ptr<Backend> backend = create_backend(name, options.backend_options);
  const std::unique_ptr<Backend> host = create_backend("scalar");  // where images lie, for their costs
  const DType kv = options.kv_dtype.value_or(backend->default_kv_dtype());
  std::optional<MachineLimits> limits = limits_of(*backend);
  if (!limits->known()) limits.reset();

  std::vector<BenchRow> rows;
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpId>(i);
    for (const DType type : types_of(op)) {
      for (const int32_t tokens : {1, kPrefillTokens}) {
        const OpImage image = make_image(op, tokens, type, reads_cache(op) ? type : kv);
        const OpCost cost = op_cost(image.record(), *host);
        const bool rotates = tokens == 1 && cost.weight_bytes > 0;
        const auto copies =
            static_cast<size_t>(rotates ? std::clamp(kRotation / cost.weight_bytes + 1, 1.0, 64.0) : 1.0);
        BenchRow row{.phase = tokens == 1 ? "decode" : "prefill",
                     .name = std::string(op_name(op)),
                     .type = std::string(dtype_name(type)),
                     .kv_type = std::string(dtype_name(kv)),
                     .backend = std::string(backend->name()),
                     .threads = backend->workers(),
                     .depth = tokens == 1 ? kDepth : 0,
                     .tokens = tokens};
        std::vector<double> seconds;
        try {
          seconds = time_op(image, *backend, copies, repeat);
        } catch (const Error& error) {
          log(LogLevel::debug, "{} is not measured: {}", row.name, error.what());
          continue;
        }
        std::vector<double> speeds;
        for (const double s : seconds) speeds.push_back(tokens / s);
        const double time = summarize(seconds).median;
        row.tokens_per_second = summarize(speeds);
        row.microseconds = time * 1e6;
        row.gb_per_s = cost.bytes() / time / 1e9;
        row.gop_per_s = cost.operations / time / 1e9;
        const double working_set = cost.bytes() * static_cast<double>(copies);
        if (limits) row.percent_of_limit = 100 * limits->least_us(cost, working_set) / (time * 1e6);
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

}  // namespace inferno
