// Arguments of every op: plain, trivially copyable data. Outputs are provided by the caller.
//
// An op writes its `out` fields in full. Only where the caller sets `private_result`, which says that the op recorded
// right after reads the result and nobody else ever does, may a backend hand the result on in a form of its own, leave
// the tensor unwritten, or run both ops as one. Ops connected by private results are a group (op_group.h).
//
// Each struct lists its fields once, in fields(), with a tag: what the op does with it. Printing, byte counts,
// recording, verification and placement all read that list. Matrices are row-major [rows, cols]; T is tokens, d the
// model's width. A Tensor with no data, or a null Weight, is an argument left out.
#pragma once

#include <cstdint>

#include "backend/kv_view.h"
#include "backend/step_batch.h"
#include "backend/weight.h"
#include "tensor/tensor.h"

namespace inferno {

enum class FieldTag : uint8_t {
  in,           // read
  out,          // written in full
  private_out,  // a private result: for the next op, its tensor may stay unwritten
  inout,        // read and written
  state,        // rows of sequences, read and written at the batch's state slots
  weight,       // a model weight, read
  kv_in,        // cache pages, read through the batch's block table
  kv_out,       // cache pages, written at the batch's slots
  batch,        // the step's int32 arrays
  attr,         // a plain value
};

// Which elements of a head rotate together: (i, i + n/2), as Qwen, or (2i, 2i + 1), as Llama in GGUF files.
enum class RopePairing : uint8_t { half_split, interleaved };

// Rotary embedding: a table of (cos, sin) pairs made once at load, so that every backend rotates by the same numbers.
struct RopeParams {
  Tensor table;              // f32 [context, rotated_dims / 2, 2]
  int32_t rotated_dims = 0;  // leading elements of a head that rotate; the rest pass through
  RopePairing pairing = RopePairing::half_split;
};

// What is between the products of an MLP, and what an output gate goes through.
enum class Activation : uint8_t {
  silu,          // x / (1 + exp(-x))
  gelu_tanh,     // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
  gelu_erf,      // x / 2 * (1 + erf(x / sqrt(2)))
  relu_squared,  // max(x, 0)^2
  clamped_silu,  // gpt-oss: x' / (1 + exp(-1.702 x')) with x' = min(x, 7); its factor u becomes clamp(u, -7, 7) + 1
  sigmoid,       // 1 / (1 + exp(-x))
  softplus,      // log(1 + exp(x))
};
inline constexpr int kActivations = 7;

// How a router scores experts. All choose the best ones by these scores, the first of equals.
enum class RouterScore : uint8_t {
  softmax,         // of all logits
  sigmoid,         // of each logit
  softmax_chosen,  // experts are chosen by their logits; their weights are the softmax of those alone
  sqrt_softplus,   // sqrt(log(1 + exp(logit)))
};
inline constexpr int kRouterScores = 4;

// How logits of experts become weights (routing.h).
struct Routing {
  RouterScore score = RouterScore::softmax;
  int32_t used = 1;       // experts of a token
  bool normalize = true;  // their weights are divided by their sum
  float scale = 1;        // and multiplied by this
  float logit_scale = 1;  // logits are multiplied by this first
  // Experts in groups of equal size: those of the best groups alone can be chosen, a group being worth its best two.
  int32_t groups = 1;
  int32_t groups_used = 1;
};
// More than any model has.
inline constexpr int32_t kMaxExpertGroups = 64;

#define INFERNO_FIELDS(...)                      \
  template <typename Self, typename Visitor>     \
  static void fields(Self& a, Visitor&& visit) { \
    using enum FieldTag;                         \
    __VA_ARGS__                                  \
  }

// ---- primitives ---------------------------------------------------------------------------------------------------

struct AddArgs {  // out = a + b, element by element; b may also be one row [cols], added to every row of a
  Tensor a, b, out;
  INFERNO_FIELDS(visit(in, "a", a.a); visit(in, "b", a.b); visit(out, "out", a.out);)
};
struct HadamardArgs {  // out = a * b, element by element; b may also be one row [cols]
  Tensor a, b, out;
  INFERNO_FIELDS(visit(in, "a", a.a); visit(in, "b", a.b); visit(out, "out", a.out);)
};
struct SiluArgs {  // out = x / (1 + exp(-x))
  Tensor x, out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(out, "out", a.out);)
};
struct ActivateArgs {  // out = f(x), or f(x) * factor, element by element
  Tensor x;
  Tensor factor;  // optional
  Activation activation = Activation::silu;
  Tensor out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(in, "factor", a.factor); visit(attr, "activation", a.activation);
                 visit(out, "out", a.out);)
};
struct SoftCapArgs {  // out = cap * tanh(x / cap)
  Tensor x;
  float cap = 1;
  Tensor out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(attr, "cap", a.cap); visit(out, "out", a.out);)
};
struct ScaleArgs {  // out = x * s
  Tensor x;
  float s = 1;
  Tensor out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(attr, "s", a.s); visit(out, "out", a.out);)
};
struct AddScalarArgs {  // out = x + s
  Tensor x;
  float s = 0;
  Tensor out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(attr, "s", a.s); visit(out, "out", a.out);)
};
struct RsqrtElemArgs {  // out = 1 / sqrt(x)
  Tensor x, out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(out, "out", a.out);)
};
struct SumSquaresAxisArgs {  // x [rows, cols]; axis 1: out [rows], sums over each row; axis 0: out [cols]
  Tensor x;
  int32_t axis = 1;
  Tensor out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(attr, "axis", a.axis); visit(out, "out", a.out);)
};
struct BroadcastRowScalarsArgs {  // t [rows] -> out [rows, cols], out[r][c] = t[r]
  Tensor t, out;
  INFERNO_FIELDS(visit(in, "t", a.t); visit(out, "out", a.out);)
};
struct Transpose2dArgs {  // x [rows, cols] -> out [cols, rows]
  Tensor x, out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(out, "out", a.out);)
};
struct SoftmaxRowsArgs {  // each row: exp(x - max) / sum
  Tensor x, out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(out, "out", a.out);)
};
struct ReshapeDataArgs {  // out has x's elements in x's order under out's shape
  Tensor x, out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(out, "out", a.out);)
};
struct MatmulArgs {  // a [m, n], b [n, p] -> out [m, p]; all f32
  Tensor a, b, out;
  INFERNO_FIELDS(visit(in, "a", a.a); visit(in, "b", a.b); visit(out, "out", a.out);)
};
struct GatherRowsArgs {  // table [rows, cols] of any weight type, indices i32 [n] -> out f32 [n, cols]
  const Weight* table = nullptr;
  Tensor indices;         // left out: rows first_row .. first_row + n
  int64_t first_row = 0;  // used when indices are left out
  Tensor out;
  INFERNO_FIELDS(visit(weight, "table", a.table); visit(in, "indices", a.indices);
                 visit(attr, "first_row", a.first_row); visit(out, "out", a.out);)
};
struct FillStrictUpperTriArgs {  // x[r][c] = value where c > r + offset (offset 0: strictly above the diagonal)
  Tensor x;
  float value = 0;
  int64_t offset = 0;
  INFERNO_FIELDS(visit(inout, "x", a.x); visit(attr, "value", a.value); visit(attr, "offset", a.offset);)
};
struct FillStrictLowerTriArgs {  // x[r][c] = value where c < r + offset (offset 0: strictly below the diagonal)
  Tensor x;
  float value = 0;
  int64_t offset = 0;
  INFERNO_FIELDS(visit(inout, "x", a.x); visit(attr, "value", a.value); visit(attr, "offset", a.offset);)
};
struct Copy2dFromColsArgs {  // out [rows, w] = x[:, col_offset : col_offset + w]
  Tensor x;
  int64_t col_offset = 0;
  Tensor out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(attr, "col_offset", a.col_offset); visit(out, "out", a.out);)
};
struct Copy2dIntoColsArgs {  // dst[:, col_offset : col_offset + w] = src [rows, w]
  Tensor src;
  int64_t col_offset = 0;
  Tensor dst;
  INFERNO_FIELDS(visit(in, "src", a.src); visit(attr, "col_offset", a.col_offset); visit(inout, "dst", a.dst);)
};
struct RepeatRowAsMatrixArgs {  // x f32 [cols], or a vector weight of as many -> out [rows, cols], every row x
  Tensor x;
  const Weight* weight_row = nullptr;  // used when x is left out
  Tensor out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(weight, "weight_row", a.weight_row); visit(out, "out", a.out);)
};
struct ApplyRopeArgs {  // x [T, heads * head_dim] rotated in place, row t by positions[t]
  Tensor x;
  Tensor positions;  // i32 [T]
  int32_t head_dim = 0;
  RopeParams rope;
  INFERNO_FIELDS(visit(inout, "x", a.x); visit(in, "positions", a.positions); visit(attr, "head_dim", a.head_dim);
                 visit(in, "rope", a.rope.table); visit(attr, "rotated_dims", a.rope.rotated_dims);
                 visit(attr, "pairing", a.rope.pairing);)
};
struct ApplyRopeSingleRowArgs {  // x [heads * head_dim] rotated in place by one position
  Tensor x;
  int32_t position = 0;
  int32_t head_dim = 0;
  RopeParams rope;
  INFERNO_FIELDS(visit(inout, "x", a.x); visit(attr, "position", a.position); visit(attr, "head_dim", a.head_dim);
                 visit(in, "rope", a.rope.table); visit(attr, "rotated_dims", a.rope.rotated_dims);
                 visit(attr, "pairing", a.rope.pairing);)
};
struct ConcatDim0Args {  // a [m, cols], b [n, cols] -> out [m + n, cols]
  Tensor a, b, out;
  INFERNO_FIELDS(visit(in, "a", a.a); visit(in, "b", a.b); visit(out, "out", a.out);)
};
struct CopyRow2dArgs {  // out [cols] = x[row]
  Tensor x;
  int64_t row = 0;
  Tensor out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(attr, "row", a.row); visit(out, "out", a.out);)
};
struct CopyContiguousIntoArgs {  // dst's elements start .. start + n = x's n elements
  Tensor x;
  int64_t start = 0;
  Tensor dst;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(attr, "start", a.start); visit(inout, "dst", a.dst);)
};
struct ArgmaxWithProbArgs {  // per row: index of the maximum (the first of equals) and its softmax probability
  Tensor x;
  Tensor index;  // i32 [rows]
  Tensor prob;   // f32 [rows]
  INFERNO_FIELDS(visit(in, "x", a.x); visit(out, "index", a.index); visit(out, "prob", a.prob);)
};
// Rows of k [T, kv_heads * head_dim] and v [T, kv_heads * value_dim] into the cache at batch.slot, rounded to its type.
// v is left out where the cache keeps values in its keys.
struct KvStoreArgs {
  Tensor k, v;
  KvLayerView kv;
  StepBatch batch;
  INFERNO_FIELDS(visit(in, "k", a.k); visit(in, "v", a.v); visit(kv_out, "kv", a.kv);
                 visit(FieldTag::batch, "batch", a.batch);)
};
// Keys or values of one head of one sequence, positions 0 .. n -> out f32 [n, head_dim] or [n, value_dim].
struct KvLoadArgs {
  KvLayerView kv;
  StepBatch batch;
  int32_t sequence = 0;
  int32_t head = 0;
  bool values = false;
  Tensor out;
  INFERNO_FIELDS(visit(kv_in, "kv", a.kv); visit(FieldTag::batch, "batch", a.batch);
                 visit(attr, "sequence", a.sequence); visit(attr, "head", a.head); visit(attr, "values", a.values);
                 visit(out, "out", a.out);)
};

// Which experts each row goes to, and with which weights: 0 for those that are not chosen.
struct RouteArgs {
  Tensor logits;          // [T, experts]
  Tensor selection_bias;  // [experts], optional: added to the scores for the choice, not to the weights
  Routing routing;
  Tensor out;  // [T, experts]
  INFERNO_FIELDS(visit(in, "logits", a.logits); visit(in, "selection_bias", a.selection_bias);
                 visit(attr, "score", a.routing.score); visit(attr, "used", a.routing.used);
                 visit(attr, "normalize", a.routing.normalize); visit(attr, "scale", a.routing.scale);
                 visit(attr, "logit_scale", a.routing.logit_scale); visit(attr, "groups", a.routing.groups);
                 visit(attr, "groups_used", a.routing.groups_used); visit(out, "out", a.out);)
};

// ---- fused ops ----------------------------------------------------------------------------------------------------

// out [T, d] = rows ids of the table * scale. Where the table is a rank's part of the vocabulary, ids count from its
// first row, and the row of an id of -1, which another rank has, is zero.
struct EmbedArgs {
  const Weight* table = nullptr;  // [vocabulary, d]
  Tensor ids;                     // i32 [T]; may be an earlier step's output on the device
  Tensor out;
  float scale = 1;
  INFERNO_FIELDS(visit(weight, "table", a.table); visit(in, "ids", a.ids); visit(out, "out", a.out);
                 visit(attr, "scale", a.scale);)
};
struct RmsNormArgs {  // out = x / sqrt(mean(x^2) + eps) * weight, per row of `weight` elements
  Tensor x;
  const Weight* weight = nullptr;  // [cols]; optional: without it per row of x
  float eps = 0;
  Tensor out;  // may be x
  INFERNO_FIELDS(visit(in, "x", a.x); visit(FieldTag::weight, "weight", a.weight); visit(attr, "eps", a.eps);
                 visit(out, "out", a.out);)
};
struct LayerNormArgs {  // out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias, per row
  Tensor x;
  const Weight* weight = nullptr;  // [cols]
  const Weight* bias = nullptr;    // [cols], optional
  float eps = 0;
  Tensor out;  // may be x
  INFERNO_FIELDS(visit(in, "x", a.x); visit(FieldTag::weight, "weight", a.weight);
                 visit(FieldTag::weight, "bias", a.bias); visit(attr, "eps", a.eps); visit(out, "out", a.out);)
};

enum class Epilogue : uint8_t {
  none,
  swiglu,  // two weights: out[0] = silu(x w[0]^T) * (x w[1]^T)
};
// out[i] [T, N_i] = x [T, K] * w[i]^T + bias[i] (+ residual); up to three weights share one reading of x. With one
// weight, of its output y: out_scale * (residual + residual_scale * norm(y)).
struct LinearArgs {
  static constexpr int kMaxWeights = 3;
  Tensor x;
  const Weight* w[kMaxWeights] = {};     // each [N_i, K]
  const Weight* bias[kMaxWeights] = {};  // each [N_i], optional
  Tensor residual;                       // [T, N], optional, only with one weight; may be out[0]
  Tensor rows;                           // i32 [R], optional: only these rows of x, outputs are [R, N_i]
  Epilogue epilogue = Epilogue::none;
  const Weight* post_norm = nullptr;  // [N], or of each [N / n] columns; optional, only with one weight
  float eps = 0;                      // of post_norm
  float residual_scale = 1;           // 1 with several weights
  float out_scale = 1;                // the same
  Tensor out[kMaxWeights];
  INFERNO_FIELDS(visit(in, "x", a.x); visit(weight, "w", a.w[0]); visit(weight, "w1", a.w[1]);
                 visit(weight, "w2", a.w[2]); visit(weight, "bias", a.bias[0]); visit(weight, "bias1", a.bias[1]);
                 visit(weight, "bias2", a.bias[2]); visit(in, "residual", a.residual); visit(in, "rows", a.rows);
                 visit(attr, "epilogue", a.epilogue); visit(weight, "post_norm", a.post_norm);
                 visit(attr, "eps", a.eps); visit(attr, "residual_scale", a.residual_scale);
                 visit(attr, "out_scale", a.out_scale); visit(out, "out", a.out[0]); visit(out, "out1", a.out[1]);
                 visit(out, "out2", a.out[2]);)
};

// Norm, the projections, norms of q, k and v, rotation; K and V go into the cache, q comes out.
struct QkvRopeStoreArgs {
  Tensor x;                      // [T, d]
  const Weight* norm = nullptr;  // [d], optional: x is normalized first
  float eps = 0;                 // of all norms here
  // q [q_heads * head_dim, d], k [kv_heads * head_dim, d], v [kv_heads * value_dim, d]. Without v, v is k before its
  // norm and rotation. With q alone nothing is stored: attention reads the cache of another layer.
  const Weight* w[3] = {};
  const Weight* bias[3] = {};  // optional
  // [head_dim], of each head, or [heads * head_dim], of the whole row; optional.
  const Weight *q_norm = nullptr, *k_norm = nullptr;
  bool v_norm = false;             // each head of v is normalized, without a weight
  RopeParams rope;                 // without a table nothing rotates
  Tensor q_rope;                   // like rope.table, optional: q rotates by this instead
  const Weight* w_gate = nullptr;  // [q_heads * value_dim, d] or [q_heads, d], optional: the gate of attention's output
  KvLayerView kv;
  StepBatch batch;
  bool private_result = false;  // q is read by the attention recorded next, and by nobody else
  Tensor q;                     // out [T, q_heads * head_dim]
  Tensor gate;                  // out, with w_gate: [T, rows of w_gate]
  INFERNO_FIELDS(visit(in, "x", a.x); visit(weight, "norm", a.norm); visit(attr, "eps", a.eps);
                 visit(weight, "wq", a.w[0]); visit(weight, "wk", a.w[1]); visit(weight, "wv", a.w[2]);
                 visit(weight, "bq", a.bias[0]); visit(weight, "bk", a.bias[1]); visit(weight, "bv", a.bias[2]);
                 visit(weight, "q_norm", a.q_norm); visit(weight, "k_norm", a.k_norm); visit(attr, "v_norm", a.v_norm);
                 visit(in, "rope", a.rope.table); visit(attr, "rotated_dims", a.rope.rotated_dims);
                 visit(attr, "pairing", a.rope.pairing); visit(in, "q_rope", a.q_rope);
                 visit(weight, "w_gate", a.w_gate); visit(a.w[1] != nullptr ? kv_out : kv_in, "kv", a.kv);
                 visit(FieldTag::batch, "batch", a.batch); visit(attr, "private_result", a.private_result);
                 visit(a.private_result ? private_out : out, "q", a.q); visit(out, "gate", a.gate);)
};

// Attention of this step's queries over their own sequences' cached positions. Query head h reads kv head
// h / (q_heads / kv_heads).
struct AttentionArgs {
  Tensor q;  // [T, q_heads * head_dim]
  KvLayerView kv;
  StepBatch batch;
  float scale = 1;
  // Which cached positions j a query at position p sees. Causal: j <= p, with a window p - window < j <= p. Not causal:
  // all of them, with a window |p - j| <= window / 2.
  bool causal = true;
  int32_t window = 0;             // 0: none
  float softcap = 0;              // scores s become cap * tanh(s / cap) before the softmax; 0: none
  const Weight* sinks = nullptr;  // [q_heads], optional: a score of each head that only its softmax's sum counts
  Tensor gate;                    // [T, q_heads * value_dim] or [T, q_heads], optional: out *= activation(gate)
  Activation gate_activation = Activation::sigmoid;
  bool private_result = false;  // out is read by the linear recorded next, and by nobody else
  Tensor out;                   // [T, q_heads * value_dim]
  INFERNO_FIELDS(visit(in, "q", a.q); visit(kv_in, "kv", a.kv); visit(FieldTag::batch, "batch", a.batch);
                 visit(attr, "scale", a.scale); visit(attr, "causal", a.causal); visit(attr, "window", a.window);
                 visit(attr, "softcap", a.softcap); visit(weight, "sinks", a.sinks); visit(in, "gate", a.gate);
                 visit(attr, "gate_activation", a.gate_activation); visit(attr, "private_result", a.private_result);
                 visit(a.private_result ? private_out : out, "out", a.out);)
};

// out [T, d] = out_scale * (residual + residual_scale * post_norm(down(f(gate(h)) * up(h)))), h = norm(x) or x. Without
// a gate the middle is f(up(h)).
struct GatedMlpArgs {
  Tensor x;
  const Weight* norm = nullptr;  // optional
  float eps = 0;                 // of both norms
  const Weight* gate = nullptr;  // [ffn, d], optional
  const Weight* up = nullptr;    // [ffn, d]
  const Weight* down = nullptr;  // [d, ffn]
  const Weight* bias[3] = {};    // of gate, up and down, optional
  Activation activation = Activation::silu;
  const Weight* post_norm = nullptr;  // [d], optional
  float residual_scale = 1;
  float out_scale = 1;
  Tensor residual;  // optional; may be out
  Tensor out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(weight, "norm", a.norm); visit(attr, "eps", a.eps);
                 visit(weight, "gate", a.gate); visit(weight, "up", a.up); visit(weight, "down", a.down);
                 visit(weight, "gate_bias", a.bias[0]); visit(weight, "up_bias", a.bias[1]);
                 visit(weight, "down_bias", a.bias[2]); visit(attr, "activation", a.activation);
                 visit(weight, "post_norm", a.post_norm); visit(attr, "residual_scale", a.residual_scale);
                 visit(attr, "out_scale", a.out_scale); visit(in, "residual", a.residual); visit(out, "out", a.out);)
};

// A mixture of experts: out [T, d] = out_scale * (residual + residual_scale * post_norm(y)), h = norm(x) or x, and per
// token
//   y = experts_norm(sum over its experts e of weight_e * (down_e(f(gate_e(h)) * up_e(h)) + bias))
//       + shared_gate(h) * shared
// Without a gate the middle is f(up_e(h)). The weights come from the router (Routing), which reads h or router_norm(x),
// and are multiplied by expert_scale; the sum begins with the best expert and ends with `shared`.
struct MoeMlpArgs {
  Tensor x;
  const Weight* norm = nullptr;            // [d], optional
  float eps = 0;                           // of all norms here
  const Weight* router_norm = nullptr;     // [d], optional: the router has a norm of its own
  const Weight* router = nullptr;          // [experts, d]
  const Weight* router_bias = nullptr;     // [experts], optional: of the logits
  const Weight* selection_bias = nullptr;  // [experts], optional: as RouteArgs
  Routing routing;
  const Weight* expert_scale = nullptr;         // [experts], optional
  const Weight *gate = nullptr, *up = nullptr;  // [experts, ffn, d]; gate optional
  const Weight* down = nullptr;                 // [experts, d, ffn]
  const Weight* bias[3] = {};                   // of gate, up and down: [experts * ffn], [experts * d]; optional
  Activation activation = Activation::silu;
  const Weight* experts_norm = nullptr;  // [d], optional
  Tensor shared;                         // [T, d], optional: what experts of all tokens make of x
  const Weight* shared_gate = nullptr;   // [d], optional: shared is multiplied by sigmoid(h . shared_gate)
  const Weight* post_norm = nullptr;     // [d], optional
  float residual_scale = 1;
  float out_scale = 1;
  Tensor residual;  // optional; may be out
  Tensor out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(weight, "norm", a.norm); visit(attr, "eps", a.eps);
                 visit(weight, "router_norm", a.router_norm); visit(weight, "router", a.router);
                 visit(weight, "router_bias", a.router_bias); visit(weight, "selection_bias", a.selection_bias);
                 visit(attr, "score", a.routing.score); visit(attr, "used", a.routing.used);
                 visit(attr, "normalize", a.routing.normalize); visit(attr, "scale", a.routing.scale);
                 visit(attr, "logit_scale", a.routing.logit_scale); visit(attr, "groups", a.routing.groups);
                 visit(attr, "groups_used", a.routing.groups_used); visit(weight, "expert_scale", a.expert_scale);
                 visit(weight, "gate", a.gate); visit(weight, "up", a.up); visit(weight, "down", a.down);
                 visit(weight, "gate_bias", a.bias[0]); visit(weight, "up_bias", a.bias[1]);
                 visit(weight, "down_bias", a.bias[2]); visit(attr, "activation", a.activation);
                 visit(weight, "experts_norm", a.experts_norm); visit(in, "shared", a.shared);
                 visit(weight, "shared_gate", a.shared_gate); visit(weight, "post_norm", a.post_norm);
                 visit(attr, "residual_scale", a.residual_scale); visit(attr, "out_scale", a.out_scale);
                 visit(in, "residual", a.residual); visit(out, "out", a.out);)
};

// More than any model has.
inline constexpr int32_t kMaxConvTaps = 8;

// A causal convolution of each channel over the positions of a sequence, K taps long: with u = x * factor,
//   out[p] = f(sum over k of weight[k] * u[p - (K - 1) + k] + bias) * gate[p]
// The sum begins with the oldest input. Inputs of earlier steps are kept in the sequence's state; before position 0
// they are zero, whatever the state holds.
struct ShortConvArgs {
  Tensor x;                        // [T, C]
  Tensor factor;                   // [T, C], optional
  const Weight* weight = nullptr;  // [C * K]: the taps of each channel, the oldest first
  const Weight* bias = nullptr;    // [C], optional
  bool silu = false;               // f is silu, else nothing
  Tensor gate;                     // [T, C], optional
  Tensor state;                    // [slots, (K - 1) * C]: by batch.state_slot, the last K - 1 inputs, the oldest first
  StepBatch batch;
  Tensor out;  // [T, C]; may be x
  INFERNO_FIELDS(visit(in, "x", a.x); visit(in, "factor", a.factor); visit(FieldTag::weight, "weight", a.weight);
                 visit(FieldTag::weight, "bias", a.bias); visit(attr, "silu", a.silu); visit(in, "gate", a.gate);
                 visit(FieldTag::state, "state", a.state); visit(FieldTag::batch, "batch", a.batch);
                 visit(out, "out", a.out);)
};

// The gated delta rule, an attention without a cache: per value head a matrix M [head_dim, head_dim] of keys by values
// is carried from token to token. With q and k of unit length and q divided by sqrt(head_dim),
//   M *= exp(a * softplus(alpha + dt));  M += k (x) sigmoid(beta) * (v - k M);  out = norm(q M) * silu(z)
// At position 0 M begins with zeros, whatever the state holds.
struct DeltaNetArgs {
  Tensor qkv;                    // [T, (2 * k_heads + v_heads) * head_dim]: queries, keys, values
  Tensor z;                      // [T, v_heads * head_dim]
  Tensor beta, alpha;            // [T, v_heads]
  const Weight* a = nullptr;     // [v_heads], negative
  const Weight* dt = nullptr;    // [v_heads]
  const Weight* norm = nullptr;  // [head_dim]
  float eps = 0;                 // of norm
  int32_t k_heads = 0;           // of queries and keys
  bool grouped = false;          // value head h has key head h / (v_heads / k_heads), else h % k_heads
  Tensor state;                  // [slots, v_heads * head_dim * head_dim]: by batch.state_slot, M of each head
  StepBatch batch;
  Tensor out;  // [T, v_heads * head_dim]
  [[nodiscard]] int64_t v_heads() const { return beta.cols(); }
  [[nodiscard]] int64_t head_dim() const { return z.cols() / beta.cols(); }  // a multiple of 4
  INFERNO_FIELDS(visit(in, "qkv", a.qkv); visit(in, "z", a.z); visit(in, "beta", a.beta); visit(in, "alpha", a.alpha);
                 visit(weight, "a", a.a); visit(weight, "dt", a.dt); visit(weight, "norm", a.norm);
                 visit(attr, "eps", a.eps); visit(attr, "k_heads", a.k_heads); visit(attr, "grouped", a.grouped);
                 visit(FieldTag::state, "state", a.state); visit(FieldTag::batch, "batch", a.batch);
                 visit(out, "out", a.out);)
};

// Mamba-2, an attention without a cache: per head a matrix M [state, head_dim] is carried from token to token. With
// s = softplus(dt + dt_bias) and x, B and C of the token,
//   M = exp(a * s) * M + B (x) (s * x);  y = C M + skip * x;  out = norm(y * silu(z))
// The heads of a group, which follow each other, have B and C in common; the norm is of the columns of each group. At
// position 0 M begins with zeros, whatever the state holds.
struct Mamba2Args {
  Tensor xbc;                       // [T, heads * head_dim + 2 * groups * state]: x, then B of all groups, then C
  Tensor z;                         // [T, heads * head_dim]
  Tensor dt;                        // [T, heads]
  const Weight* a = nullptr;        // [heads], negative
  const Weight* dt_bias = nullptr;  // [heads]
  const Weight* skip = nullptr;     // [heads]
  const Weight* norm = nullptr;     // [heads * head_dim]
  float eps = 0;                    // of norm
  int32_t groups = 1;
  Tensor state;  // [slots, heads * state * head_dim]: by batch.state_slot, M of each head
  StepBatch batch;
  Tensor out;  // [T, heads * head_dim]
  [[nodiscard]] int64_t heads() const { return dt.cols(); }
  [[nodiscard]] int64_t head_dim() const { return z.cols() / dt.cols(); }  // a multiple of 4
  [[nodiscard]] int64_t state_size() const { return (xbc.cols() - z.cols()) / (2 * int64_t{groups}); }
  INFERNO_FIELDS(visit(in, "xbc", a.xbc); visit(in, "z", a.z); visit(in, "dt", a.dt); visit(weight, "a", a.a);
                 visit(weight, "dt_bias", a.dt_bias); visit(weight, "skip", a.skip); visit(weight, "norm", a.norm);
                 visit(attr, "eps", a.eps); visit(attr, "groups", a.groups); visit(FieldTag::state, "state", a.state);
                 visit(FieldTag::batch, "batch", a.batch); visit(out, "out", a.out);)
};

// What a layer adds for an input that it alone has of each token, with `part` the n columns from first_column on of
// `inputs`: out [T, d] = out_scale * (x + post_norm(proj(f(gate(x)) * part))).
struct LayerInputArgs {
  Tensor x;
  const Weight* gate = nullptr;  // [n, d]
  Activation activation = Activation::silu;
  Tensor inputs;  // [T, columns of all layers]
  int64_t first_column = 0;
  const Weight* proj = nullptr;       // [d, n]
  const Weight* post_norm = nullptr;  // [d]
  float eps = 0;
  float out_scale = 1;
  Tensor out;  // may be x
  INFERNO_FIELDS(visit(in, "x", a.x); visit(weight, "gate", a.gate); visit(attr, "activation", a.activation);
                 visit(in, "inputs", a.inputs); visit(attr, "first_column", a.first_column);
                 visit(weight, "proj", a.proj); visit(weight, "post_norm", a.post_norm); visit(attr, "eps", a.eps);
                 visit(attr, "out_scale", a.out_scale); visit(out, "out", a.out);)
};

// Multi-head latent attention: all heads share one row per position, whose first elements, the latent ones, are also
// the value. The rest rotates.
//   row = [norm(latent[:L]) | rotate(latent[L:])];  q of head h = [k_b[h] heads_h[:n] | rotate(heads_h[n:])]
struct LatentStoreArgs {
  Tensor heads;                  // [T, q_heads * (n + rotated)]
  Tensor latent;                 // [T, L + rotated]
  const Weight* norm = nullptr;  // [L]
  float eps = 0;                 // of norm
  const Weight* k_b = nullptr;   // [q_heads, L, n]
  RopeParams rope;
  KvLayerView kv;  // one head of L + rotated elements with values in its keys
  StepBatch batch;
  Tensor q;  // out [T, q_heads * (L + rotated)]
  INFERNO_FIELDS(visit(in, "heads", a.heads); visit(in, "latent", a.latent); visit(weight, "norm", a.norm);
                 visit(attr, "eps", a.eps); visit(weight, "k_b", a.k_b); visit(in, "rope", a.rope.table);
                 visit(attr, "rotated_dims", a.rope.rotated_dims); visit(attr, "pairing", a.rope.pairing);
                 visit(kv_out, "kv", a.kv); visit(FieldTag::batch, "batch", a.batch); visit(out, "q", a.q);)
};

// A matrix for each head: head h of out [T, heads * N] = w[h] * head h of x [T, heads * K]
struct HeadLinearArgs {
  Tensor x;
  const Weight* w = nullptr;  // [heads, N, K]
  Tensor out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(weight, "w", a.w); visit(out, "out", a.out);)
};

// out [R, vocabulary] = norm(x[rows]) * head^T * scale, then cap * tanh(out / cap)
struct LogitsArgs {
  Tensor x;                      // [T, d]
  Tensor rows;                   // i32 [R]
  const Weight* norm = nullptr;  // [d]
  float eps = 0;
  const Weight* head = nullptr;  // [vocabulary, d]
  float scale = 1;
  float softcap = 0;  // 0: none
  Tensor out;
  INFERNO_FIELDS(visit(in, "x", a.x); visit(in, "rows", a.rows); visit(weight, "norm", a.norm);
                 visit(attr, "eps", a.eps); visit(weight, "head", a.head); visit(attr, "scale", a.scale);
                 visit(attr, "softcap", a.softcap); visit(out, "out", a.out);)
};

// One token id per row of logits. See sampling.h for the definition of the draw, and for what the rows and edits are.
struct SampleArgs {
  Tensor logits;    // [R, vocabulary]
  Tensor rows;      // SampleRow[R], as i32 [R, sizeof(SampleRow) / 4]
  Tensor edits;     // TokenEdit[E], as i32 [E, sizeof(TokenEdit) / 4]; each row has a range of them. Optional
  Tensor allowed;   // i32 [M, bitset_words(vocabulary)]: bitsets of allowed tokens; a row may have one. Optional
  Tensor out;       // i32 [R]: tokens, or kNothingAllowed, kNotFinite
  Tensor top_ids;   // i32 [R, kLogprobColumns]: the drawn token, then the likeliest in order; -1 where there is none.
  Tensor logprobs;  // [R, kLogprobColumns]: of those tokens; 0 where there is none. Both or neither
  INFERNO_FIELDS(visit(in, "logits", a.logits); visit(in, "rows", a.rows); visit(in, "edits", a.edits);
                 visit(in, "allowed", a.allowed); visit(out, "out", a.out); visit(out, "top_ids", a.top_ids);
                 visit(out, "logprobs", a.logprobs);)
};

// Sum over ranks, in place; parts are added in rank order. With one rank: nothing to do.
struct AllReduceArgs {
  Tensor x;
  DType wire = DType::f32;  // what parts are sent as: f32, or bf16, to which each is rounded before it is added
  int32_t first_rank = 0;   // of those that it is about, and
  int32_t ranks = 0;        // their number; 0: all
  INFERNO_FIELDS(visit(inout, "x", a.x); visit(attr, "wire", a.wire); visit(attr, "first_rank", a.first_rank);
                 visit(attr, "ranks", a.ranks);)
};
// x of one rank becomes x of another, which has as many rows; both record it.
struct PassOnArgs {
  Tensor x;     // [T, d]
  Tensor rows;  // i32 [R], of rank `from`: those that go; empty: all
  int32_t from = 0;
  int32_t to = 0;
  INFERNO_FIELDS(visit(inout, "x", a.x); visit(in, "rows", a.rows); visit(attr, "from", a.from);
                 visit(attr, "to", a.to);)
};
// Columns of the first ranks beside each other, on rank 0; elsewhere out stays as it is.
struct AllGatherArgs {
  Tensor x;       // [R, columns of this rank]
  Tensor begins;  // i32 [ranks + 1]: the first column of each rank, and the end of the last
  // 0: all columns. n: of each rank the n largest of every row, the first of equals; the others may come out as -inf.
  int32_t most = 0;
  static constexpr int32_t kMost = 256;
  Tensor out;  // [R, columns of all ranks]
  INFERNO_FIELDS(visit(in, "x", a.x); visit(in, "begins", a.begins); visit(attr, "most", a.most);
                 visit(FieldTag::out, "out", a.out);)
};

#undef INFERNO_FIELDS

}  // namespace inferno
