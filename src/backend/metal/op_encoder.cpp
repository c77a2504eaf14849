#include "backend/metal/op_encoder.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>

#include "backend/device/op_kernels.h"
#include "backend/metal/op_support.h"
#include "backend/sampling.h"
#include "base/error.h"

namespace inferno::metal {
namespace {

constexpr uint32_t kManyRows = 64;  // of linear_many.metal, as the next two
constexpr uint32_t kManyTokens = 32;
constexpr uint32_t kManyThreads = 128;
constexpr uint32_t kPartThreads = 128;  // kSimdgroups of attention_decode.metal
constexpr uint32_t kQueries = 8;        // of attention_tiles.metal, as the next
constexpr uint32_t kTileThreads = 128;
constexpr int32_t kMaxTileHeadDim = 256;  // what attention_tiles and attention_part have room for
constexpr uint32_t kMatmulTile = 16;      // kTile of matmul.metal, whose threads are its square
constexpr uint32_t kSampleChunk = 1024;   // kChunk of sample.metal
constexpr uint32_t kDrawThreads = 512;    // of select.h
constexpr size_t kMaxTouched = 64;        // by kernels between two barriers

// Rows and edits are uploaded as C++ has them.
static_assert(sizeof(SampleRowArgs) == sizeof(SampleRow) && sizeof(TokenEditArgs) == sizeof(TokenEdit));
static_assert(offsetof(SampleRowArgs, seed_low) == offsetof(SampleRow, settings) + offsetof(SamplingSettings, seed));
static_assert(offsetof(SampleRowArgs, sample_index) == offsetof(SampleRow, sample_index));
static_assert(offsetof(SampleRowArgs, top_logprobs) == offsetof(SampleRow, top_logprobs));

// Parts that the positions of a sequence are cut into: enough threadgroups to keep a large GPU busy.
uint32_t splits_of(int64_t tokens, int64_t q_heads) {
  constexpr int64_t kBusyGroups = 256;
  constexpr int64_t kMaxSplits = 16;
  return u32(std::clamp<int64_t>(kBusyGroups / std::max<int64_t>(1, tokens * q_heads), 1, kMaxSplits));
}

bool overlap(const Binding& a, const Binding& b) {
  const auto* x = static_cast<const std::byte*>(a.data);
  const auto* y = static_cast<const std::byte*>(b.data);
  return x < y + b.bytes && y < x + a.bytes;
}

}  // namespace

std::string KernelId::name() const {
  constexpr std::array<std::string_view, static_cast<size_t>(Kernel::count)> kNames = {
      "linear",          "linear_few",
      "linear_many",     "linear_pair",
      "linear_pairs",    "embed",
      "rms_norm",        "layer_norm",
      "gated_norm",      "add",
      "activate",        "finish",
      "rope_store",      "rotate_ends",
      "attention_part",  "attention_part_wide",
      "attention_merge", "attention_tiles",
      "route",           "sort_pairs",
      "expert_sum",      "short_conv",
      "delta_net",       "mamba2",
      "matmul",          "sample_scan",
      "sample_draw"};
  std::string text(kNames[static_cast<size_t>(kernel)]);
  if (dtype == DType::i32) return text;
  text += '_';
  for (const char c : dtype_name(dtype)) text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

OpEncoder::OpEncoder(Device& device) : device_(device) {
  touched_.reserve(kMaxTouched);
}

OpEncoder::~OpEncoder() {
  regions_.each([&](const Memory& memory) {
    if (memory.data != nullptr) device_.free(memory.data);
  });
}

void OpEncoder::reserve(const OpRecord& record) {
  const device::Planning planning(planning_);
  (void)encode(record);
}

bool OpEncoder::encode(const OpRecord& record) {
  return record.visit([&](const auto& args) { return op(args); });
}

// ---- memory and order

Binding OpEncoder::floats(Region region, int64_t count) {
  const int64_t bytes = count * int64_t{sizeof(float)};
  const auto grow = [&](Memory& memory) {
    if (memory.data != nullptr) {
      if (!planning_) {  // commands so far may use the old memory
        submit();
        begin();
      }
      device_.wait();
      device_.free(memory.data);
      memory = {};
    }
    memory = {.data = device_.allocate(static_cast<size_t>(bytes)), .size = static_cast<size_t>(bytes)};
  };
  return {.data = regions_.get(region, bytes, grow).data, .bytes = bytes};
}

bool OpEncoder::order(std::span<const Binding> buffers) {
  bool waits = std::any_of(buffers.begin(), buffers.end(), [&](const Binding& b) {
    return std::any_of(touched_.begin(), touched_.end(),
                       [&](const Binding& t) { return (b.written || t.written) && overlap(b, t); });
  });
  waits = waits || touched_.size() + buffers.size() > kMaxTouched;
  if (waits) touched_.clear();
  std::copy_if(buffers.begin(), buffers.end(), std::back_inserter(touched_),
               [](const Binding& b) { return b.data != nullptr; });
  return waits;
}

// ---- parts of ops

uint32_t OpEncoder::row_threads(int64_t cols) {
  constexpr uint32_t kMaxThreads = 1024;  // that a threadgroup can have
  return std::clamp(blocks(cols, int64_t{4} * kSimdWidth) * kSimdWidth, kThreads, kMaxThreads);
}

void OpEncoder::norm(Binding x, const Weight* weight, const Rows& rows, float eps, Binding out) {
  const RmsNormArgs args{.cols = u32(rows.cols),
                         .stride = u32(rows.stride != 0 ? rows.stride : rows.cols),
                         .has_weight = weight != nullptr,
                         .eps = eps};
  dispatch({.kernel = Kernel::rms_norm}, {.x = u32(rows.count)}, row_threads(rows.cols), args,
           {read(x), in(weight), written(out)});
}

Binding OpEncoder::input_of(const Tensor& x, const Weight* weight, float eps, Region region) {
  if (weight == nullptr) return in(x);
  const Binding normed = floats(region, x.elements());
  norm(in(x), weight, {.count = x.rows(), .cols = x.cols()}, eps, normed);
  return normed;
}

void OpEncoder::activate(Activation activation, Binding x, Binding factor, const Rows& rows, Binding out) {
  const int64_t count = rows.count * rows.cols;
  const ActivateArgs args{.count = u32(count),
                          .has_factor = factor.data != nullptr,
                          .cols = u32(rows.cols),
                          .factor_stride = u32(rows.stride != 0 ? rows.stride : rows.cols),
                          .activation = static_cast<uint32_t>(activation)};
  dispatch({.kernel = Kernel::activate}, {.x = blocks(count, kThreads)}, kThreads, args,
           {read(x), read(factor), written(out)});
}

void OpEncoder::finish(Binding x, Binding residual, const FinishArgs& how, Binding out) {
  FinishArgs args = how;
  args.has_residual = residual.data != nullptr;
  dispatch({.kernel = Kernel::finish}, {.x = blocks(args.count, kThreads)}, kThreads, args,
           {read(x), read(residual), written(out)});
}

void OpEncoder::multiply(const Weight& weight, Binding x, int64_t tokens, const Weight* bias, Binding residual,
                         const Tensor& rows, Binding out) {
  const LinearArgs args{.weight = loaded(weight).planes(),
                        .has_bias = bias != nullptr,
                        .has_residual = residual.data != nullptr,
                        .has_x_rows = !rows.empty(),
                        .tokens = u32(tokens)};
  if (planning_) {  // later steps may have fewer tokens
    for (const Kernel kernel : {Kernel::linear, Kernel::linear_few})
      device_.prepare({.kernel = kernel, .dtype = weight.dtype()});
  }
  KernelId kernel{.kernel = Kernel::linear, .dtype = weight.dtype()};
  GridSize groups{.x = blocks(weight.rows(), int64_t{kRowsPerSimdgroup} * kThreads / kSimdWidth), .y = u32(tokens)};
  uint32_t threads = kThreads;
  if (tokens > kFewTokens) {
    kernel.kernel = Kernel::linear_many;
    groups = {.x = blocks(weight.rows(), kManyRows), .y = blocks(tokens, kManyTokens)};
    threads = kManyThreads;
  } else if (tokens > 1) {
    kernel.kernel = Kernel::linear_few;
    groups.y = 1;
  }
  dispatch(kernel, groups, threads, args, {in(&weight), read(x), in(bias), read(residual), written(out), in(rows)});
}

void OpEncoder::project(const Weight& weight, Binding x, int64_t tokens, const Projection& how, Binding out) {
  if (how.post_norm == nullptr && how.residual_scale == 1 && how.out_scale == 1) {
    multiply(weight, x, tokens, how.bias, in(how.residual), how.rows, out);
    return;
  }
  const int64_t count = tokens * weight.rows();
  const Binding product = floats(Region::product, count);
  multiply(weight, x, tokens, how.bias, {}, how.rows, product);
  if (how.post_norm != nullptr) {
    const int64_t cols = how.post_norm->cols();
    norm(product, how.post_norm, {.count = count / cols, .cols = cols}, how.eps, product);
  }
  finish(
      product, in(how.residual),
      {.count = u32(count), .has_residual = 0, .scale = how.residual_scale, .out_scale = how.out_scale, .softcap = 0},
      out);
}

void OpEncoder::rope_store(const RopeStoreArgs& args, DType type, int64_t tokens,
                           std::initializer_list<Binding> buffers) {
  const uint32_t key_chunks = blocks(args.cache.head_dim, 32);
  const uint32_t value_chunks = blocks(args.cache.value_dim, 32);
  const int64_t chunks =
      int64_t{args.q_heads} * key_chunks + int64_t{args.cache.kv_heads} * (key_chunks + value_chunks);
  dispatch({.kernel = Kernel::rope_store, .dtype = type}, {.x = blocks(chunks, kThreads), .y = u32(tokens)}, kThreads,
           args, buffers);
}

// ---- ops

bool OpEncoder::op(const inferno::EmbedArgs& a) {
  const EmbedArgs args{.weight = loaded(*a.table).planes(), .scale = a.scale, .padding = 0};
  const GridSize groups{.x = blocks(a.table->cols(), int64_t{32} * kThreads), .y = u32(a.ids.elements())};
  dispatch({.kernel = Kernel::embed, .dtype = a.table->dtype()}, groups, kThreads, args,
           {in(a.table), in(a.ids), out(a.out)});
  return true;
}

bool OpEncoder::op(const inferno::RmsNormArgs& a) {
  const int64_t cols = a.weight != nullptr ? a.weight->cols() : a.x.cols();
  norm(in(a.x), a.weight, {.count = a.x.elements() / cols, .cols = cols}, a.eps, out(a.out));
  return true;
}

bool OpEncoder::op(const inferno::ActivateArgs& a) {
  activate(a.activation, in(a.x), in(a.factor), {.count = 1, .cols = a.x.elements()}, out(a.out));
  return true;
}

bool OpEncoder::op(const inferno::LinearArgs& a) {
  const int64_t tokens = a.rows.empty() ? a.x.rows() : a.rows.elements();
  if (a.epilogue == Epilogue::swiglu) {
    const int64_t count = a.out[0].elements();
    const Binding gate = floats(Region::first, count);
    const Binding up = floats(Region::second, count);
    multiply(*a.w[0], in(a.x), tokens, nullptr, {}, a.rows, gate);
    multiply(*a.w[1], in(a.x), tokens, nullptr, {}, a.rows, up);
    activate(Activation::silu, gate, up, {.count = 1, .cols = count}, out(a.out[0]));
    return true;
  }
  for (int i = 0; i < inferno::LinearArgs::kMaxWeights && a.w[i] != nullptr; ++i) {
    const Projection how{.bias = a.bias[i],
                         .post_norm = a.post_norm,
                         .eps = a.eps,
                         .residual_scale = a.residual_scale,
                         .out_scale = a.out_scale,
                         .residual = a.residual,
                         .rows = a.rows};
    project(*a.w[i], in(a.x), tokens, how, out(a.out[i]));
  }
  return true;
}

void OpEncoder::store(Binding k, Binding v, const KvLayerView& kv, const StepBatch& batch) {
  RopeStoreArgs args{.cache = cache_args(kv), .q_heads = 0, .rotated_dims = 0, .interleaved = 0, .stores = 1};
  if (v.data == nullptr) args.cache.value_dim = 0;
  const int64_t tokens = batch.tokens;
  rope_store(
      args, kv.dtype, tokens,
      {{}, k, v, {}, {}, in(batch.pos, tokens), in(batch.slot, tokens), {}, written(keys(kv)), written(values(kv))});
}

bool OpEncoder::op(const KvStoreArgs& a) {
  store(in(a.k), in(a.v), a.kv, a.batch);
  return true;
}

bool OpEncoder::op(const QkvRopeStoreArgs& a) {
  const int64_t tokens = a.x.rows();
  const bool stores = a.w[1] != nullptr;
  const Binding h = input_of(a.x, a.norm, a.eps);
  const auto product = [&](Region region, int i) {
    const Binding made = floats(region, tokens * a.w[i]->rows());
    multiply(*a.w[i], h, tokens, a.bias[i], {}, {}, made);
    return made;
  };
  const Binding q = product(Region::first, 0);
  const Binding k = stores ? product(Region::second, 1) : Binding{};
  // Without a weight of its own, v is k before its norm.
  const Binding v = stores ? product(Region::third, a.w[2] != nullptr ? 2 : 1) : Binding{};
  if (a.w_gate != nullptr) multiply(*a.w_gate, h, tokens, nullptr, {}, {}, out(a.gate));
  const auto norm_heads = [&](const Binding& x, const Weight* weight, int64_t cols) {
    norm(x, weight, {.count = x.bytes / int64_t{sizeof(float)} / cols, .cols = cols}, a.eps, x);
  };
  if (a.q_norm != nullptr) norm_heads(q, a.q_norm, a.q_norm->cols());
  if (stores && a.k_norm != nullptr) norm_heads(k, a.k_norm, a.k_norm->cols());
  if (stores && a.v_norm) norm_heads(v, nullptr, a.kv.value_dim());
  const Binding table = in(a.rope.table);
  const RopeStoreArgs args{.cache = cache_args(a.kv),
                           .q_heads = u32(a.w[0]->rows() / a.kv.head_dim),
                           .rotated_dims = table.data == nullptr ? 0 : u32(a.rope.rotated_dims),
                           .interleaved = a.rope.pairing == RopePairing::interleaved,
                           .stores = stores};
  rope_store(args, a.kv.dtype, tokens,
             {q, k, v, table, a.q_rope.empty() ? table : in(a.q_rope), in(a.batch.pos, tokens),
              in(a.batch.slot, tokens), out(a.q), written(keys(a.kv)), written(values(a.kv))});
  return true;
}

bool OpEncoder::op(const inferno::AttentionArgs& a) {
  const int64_t q_heads = a.q.cols() / a.kv.head_dim;
  const int64_t tokens = a.batch.tokens;
  uint32_t gate = 0;
  if (!a.gate.empty()) gate = a.gate.elements() == a.out.elements() ? 1 : 2;
  const StepBatch& b = a.batch;
  AttentionArgs args{.cache = cache_args(a.kv),
                     .scale = a.scale,
                     .softcap = a.softcap,
                     .window = a.window,
                     .q_heads = u32(q_heads),
                     .max_pages = u32(b.max_pages),
                     .splits = 1,
                     .has_sinks = a.sinks != nullptr,
                     .gate = gate,
                     .gate_activation = static_cast<uint32_t>(a.gate_activation),
                     .tokens = u32(tokens)};
  const auto kernel = [&](Kernel which) -> KernelId {
    const int constants =
        (a.causal ? kCausal : 0) | (a.window != 0 ? kHasWindow : 0) | (a.softcap != 0 ? kHasSoftcap : 0);
    return {.kernel = which, .dtype = a.kv.dtype, .constants = static_cast<uint8_t>(constants)};
  };
  // Tiles have no room for wide heads. With few tokens of each sequence a tile would be one query's, and its keys one
  // threadgroup's work.
  const bool wide = std::max(a.kv.head_dim, a.kv.value_dim()) > kMaxTileHeadDim;
  const bool tiles = !wide && tokens >= int64_t{b.sequences} * kQueries;
  if (tiles || (planning_ && !wide)) {
    dispatch(
        kernel(Kernel::attention_tiles), {.x = u32(q_heads), .y = blocks(tokens, kQueries)}, kTileThreads, args,
        {in(a.q), keys(a.kv), values(a.kv), in(b.pos, tokens), in(b.seq_of_token, tokens), in(b.kv_len, b.sequences),
         in(b.block_table, int64_t{b.sequences} * b.max_pages), in(a.sinks), in(a.gate), out(a.out)});
  }
  if (tiles && !planning_) return true;
  const int64_t partial = a.kv.value_dim() + 2;
  if (planning_) {  // later steps have fewer tokens, and more parts
    for (int64_t t = 1; t < tokens; ++t) (void)floats(Region::partials, t * q_heads * splits_of(t, q_heads) * partial);
  }
  args.splits = splits_of(tokens, q_heads);
  const Binding partials = floats(Region::partials, tokens * q_heads * args.splits * partial);
  dispatch(kernel(wide ? Kernel::attention_part_wide : Kernel::attention_part),
           {.x = u32(q_heads), .y = u32(tokens), .z = args.splits}, kPartThreads, args,
           {in(a.q), keys(a.kv), values(a.kv), in(b.pos, tokens), in(b.seq_of_token, tokens), in(b.kv_len, b.sequences),
            in(b.block_table, int64_t{b.sequences} * b.max_pages), written(partials)});
  dispatch({.kernel = Kernel::attention_merge},
           {.x = blocks(a.kv.value_dim(), kThreads), .y = u32(q_heads), .z = u32(tokens)}, kThreads, args,
           {partials, in(a.sinks), in(a.gate), out(a.out)});
  return true;
}

bool OpEncoder::op(const GatedMlpArgs& a) {
  const int64_t tokens = a.x.rows();
  const Binding h = input_of(a.x, a.norm, a.eps);
  const int64_t count = tokens * a.up->rows();
  const Binding up = floats(Region::first, count);
  multiply(*a.up, h, tokens, a.bias[1], {}, {}, up);
  if (a.gate != nullptr) {
    const Binding gate = floats(Region::second, count);
    multiply(*a.gate, h, tokens, a.bias[0], {}, {}, gate);
    activate(a.activation, gate, up, {.count = 1, .cols = count}, up);
  } else {
    activate(a.activation, up, {}, {.count = 1, .cols = count}, up);
  }
  const Projection how{.bias = a.bias[2],
                       .post_norm = a.post_norm,
                       .eps = a.eps,
                       .residual_scale = a.residual_scale,
                       .out_scale = a.out_scale,
                       .residual = a.residual,
                       .rows = {}};
  project(*a.down, up, tokens, how, out(a.out));
  return true;
}

bool OpEncoder::op(const inferno::MatmulArgs& a) {
  const MatmulArgs args{.m = u32(a.a.rows()), .n = u32(a.a.cols()), .p = u32(a.b.cols())};
  dispatch({.kernel = Kernel::matmul}, {.x = blocks(args.p, kMatmulTile), .y = blocks(args.m, kMatmulTile)},
           kMatmulTile * kMatmulTile, args, {in(a.a), in(a.b), out(a.out)});
  return true;
}

bool OpEncoder::op(const inferno::SampleArgs& a) {
  const int64_t rows = a.logits.rows();
  const SampleArgs args{.vocabulary = u32(a.logits.cols()),
                        .chunks = blocks(a.logits.cols(), kSampleChunk),
                        .allowed_words = a.allowed.empty() ? 0 : u32(a.allowed.cols()),
                        .has_logprobs = !a.logprobs.empty()};
  // What the first kernel leaves for the second: two keys and a sum for each chunk, and the logits after all edits.
  const int64_t chunks = rows * args.chunks;
  const Binding all = floats(Region::sampling, 5 * chunks + a.logits.elements());
  const auto part = [&](int64_t begin, int64_t count) {
    return Binding{.data = static_cast<const float*>(all.data) + begin, .bytes = count * int64_t{sizeof(float)}};
  };
  const Binding largest = part(0, 2 * chunks);
  const Binding model_largest = part(2 * chunks, 2 * chunks);
  const Binding model_sums = part(4 * chunks, chunks);
  const Binding adjusted = part(5 * chunks, a.logits.elements());
  dispatch({.kernel = Kernel::sample_scan}, {.x = args.chunks, .y = u32(rows)}, kSimdWidth, args,
           {in(a.logits), in(a.rows), in(a.edits), in(a.allowed), written(largest), written(model_largest),
            written(model_sums), written(adjusted)});
  dispatch({.kernel = Kernel::sample_draw}, {.x = u32(rows)}, kDrawThreads, args,
           {in(a.logits), in(a.rows), largest, model_largest, model_sums, adjusted, out(a.out), out(a.top_ids),
            out(a.logprobs)});
  return true;
}

bool OpEncoder::op(const LogitsArgs& a) {
  const Binding normed = input_of(a.x, a.norm, a.eps);
  multiply(*a.head, normed, a.rows.elements(), nullptr, {}, a.rows, out(a.out));
  if (a.scale != 1 || a.softcap != 0) {
    finish(in(a.out), {},
           {.count = u32(a.out.elements()), .has_residual = 0, .scale = a.scale, .out_scale = 1, .softcap = a.softcap},
           out(a.out));
  }
  return true;
}

}  // namespace inferno::metal
