// OpEncoder's ops of rows that only some families have, and the limits of all kernels.
#include <algorithm>
#include <string>

#include "backend/metal/op_encoder.h"
#include "backend/metal/op_support.h"

namespace inferno::metal {

bool OpEncoder::op(const inferno::AddArgs& a) {
  const AddArgs args{.count = u32(a.a.elements()), .b_count = u32(a.b.elements())};
  dispatch({.kernel = Kernel::add}, {.x = blocks(args.count, kThreads)}, kThreads, args,
           {in(a.a), in(a.b), out(a.out)});
  return true;
}

bool OpEncoder::op(const inferno::LayerNormArgs& a) {
  const LayerNormArgs args{.cols = u32(a.x.cols()), .has_bias = a.bias != nullptr, .eps = a.eps};
  dispatch({.kernel = Kernel::layer_norm}, {.x = u32(a.x.rows())}, row_threads(a.x.cols()), args,
           {in(a.x), in(a.weight), in(a.bias), out(a.out)});
  return true;
}

bool OpEncoder::op(const LayerInputArgs& a) {
  const int64_t tokens = a.x.rows();
  const int64_t n = a.gate->rows();
  const Binding gate = floats(Region::first, tokens * n);
  multiply(*a.gate, in(a.x), tokens, nullptr, {}, {}, gate);
  activate(a.activation, gate, from(in(a.inputs), a.first_column),
           {.count = tokens, .cols = n, .stride = a.inputs.cols()}, gate);
  const Projection how{.post_norm = a.post_norm, .eps = a.eps, .out_scale = a.out_scale, .residual = a.x, .rows = {}};
  project(*a.proj, gate, tokens, how, out(a.out));
  return true;
}

// ---- limits

namespace {

constexpr int32_t kMaxHeadDim = 576;     // of attention_part_wide
constexpr int64_t kMaxExperts = 1024;    // of experts.metal
constexpr int64_t kMaxMatrixRows = 256;  // of recurrent.metal, as the next
constexpr int64_t kColumns = 4;
static_assert(kMaxConvTaps == 8 && kMaxExpertGroups == 64, "as recurrent.metal and experts.metal have them");

std::string beyond(const inferno::AttentionArgs& a) {
  const int32_t widest = std::max(a.kv.head_dim, a.kv.value_dim());
  return widest <= kMaxHeadDim ? "" : "heads of " + std::to_string(widest);
}
std::string beyond(const MoeMlpArgs& a) {
  if (a.router->rows() > kMaxExperts) return std::to_string(a.router->rows()) + " experts";
  return a.routing.groups <= kMaxExpertGroups ? "" : std::to_string(a.routing.groups) + " groups of experts";
}
std::string beyond(const inferno::ShortConvArgs& a) {
  const int64_t taps = a.weight->shape().elements() / a.x.cols();
  return taps <= kMaxConvTaps ? "" : std::to_string(taps) + " taps";
}
std::string beyond(const inferno::DeltaNetArgs& a) {
  const bool fits = a.head_dim() <= kMaxMatrixRows && a.head_dim() % kColumns == 0;
  return fits ? "" : "heads of " + std::to_string(a.head_dim());
}
std::string beyond(const inferno::Mamba2Args& a) {
  if (a.state_size() > kMaxMatrixRows) return "a state of " + std::to_string(a.state_size());
  return a.head_dim() % kColumns == 0 ? "" : "heads of " + std::to_string(a.head_dim());
}

}  // namespace

std::string OpEncoder::lacks(const OpRecord& record) {
  return record.visit([](const auto& args) -> std::string {
    if constexpr (requires { beyond(args); }) return beyond(args);
    return "";
  });
}

}  // namespace inferno::metal
