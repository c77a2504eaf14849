// The fused ops as kernel launches on one stream.
//
// For few tokens (vector_product_fits) a linear is a matrix–vector kernel with activations as the numerics contract
// says. More tokens use wide mode: activations and unpacked weights in bf16 (F16 and F32 weights: in their own type)
// through cuBLASLt, f32 accumulation; weights that share their input are one product there, and quantized ones are
// unpacked before it. Some tens of tokens use it with a kernel that unpacks by itself (tile_product.cuh), some hundreds
// with one that also does what is between the products of a layer (prompt_product.cuh). Layers of few decoded tokens,
// and those of some tens, are two kernels each (layer_ops.cpp). reserve() allocates the scratch memory of an op without
// launching anything.
//
// Arguments that only some families have (op_extras.h) run as the same products and simple kernels between them
// (family_ops.cpp); the fast kernels of attention and of heads are for plain ones.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>

#include "backend/cuda/cuda_weight.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kernels/batch_chain_task.h"
#include "backend/cuda/kernels/family_kernels.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/prompt_task.h"
#include "backend/cuda/kernels/tile_task.h"
#include "backend/cuda/rank_exchange.h"
#include "backend/cuda/workspace.h"
#include "backend/device/op_kernels.h"  // Planning
#include "backend/device/products.h"
#include "backend/plan.h"

namespace inferno::cuda {

class OpRunner {
 public:
  OpRunner(const LaunchContext& context, const std::shared_ptr<FreeCount>& frees);
  ~OpRunner();
  OpRunner(const OpRunner&) = delete;
  OpRunner& operator=(const OpRunner&) = delete;

  // Ranks pass rows on through the host.
  [[nodiscard]] static bool has_kernel(OpId op) {
    return op == OpId::kv_store || op == OpId::add || (is_fused(op) && op != OpId::pass_on);
  }
  // What the kernels have no room for in an op with these arguments, for messages; empty: nothing.
  [[nodiscard]] static std::string lacks(const OpRecord& record);
  [[nodiscard]] bool supports(OpId op, DType dtype) const;
  // Whether all products of the op are in wide mode, with quantized weights.
  [[nodiscard]] bool is_wide(const OpRecord& record) const;
  // Scratch memory for the op.
  void reserve(const OpRecord& record);
  // Launches records[0], and those after it that are one kernel with it, or layers of such; returns how many were
  // launched.
  [[nodiscard]] size_t run(std::span<const OpRecord> records);
  // Whether records[0] of the last run took the private result of the op before it from scratch memory.
  [[nodiscard]] bool took_private() const { return took_private_; }
  [[nodiscard]] Gemm& gemm() { return gemm_; }
  // Of a model over ranks; it outlives the runner.
  void set_exchange(RankExchange* exchange) { exchange_ = exchange; }
  // The next kernel does not overlap with the one before it.
  void start_chain() {
    first_of_chain_ = true;
    narrow_q_of_ = wide_x_of_ = nullptr;
    normed_ = next_normed_ = {};
    unpacked_count_ = 0;
  }
  // After start_chain(): it does, with the fetch of its inputs, and waits for that itself.
  void continue_chain() { first_of_chain_ = false; }

 private:
  struct Linear : device::RowProduct {
    Linear(const device::RowProduct& product) : RowProduct(product) {}  // every product is one
    DType out_type = DType::f32;                                        // bf16 in wide mode only
    int64_t out_stride = 0;  // elements between rows of all outputs; 0: each has its weight's rows (wide mode only)
  };
  static_assert(kMaxSegments == device::RowProduct::kMaxWeights);

  void run(const EmbedArgs& a);
  void run(const RmsNormArgs& a);
  void run(const LinearArgs& a);
  void run(const GatedMlpArgs& a);
  void run(const LogitsArgs& a);
  void run(const SampleArgs& a);
  void run(const KvStoreArgs& a);
  void run(const AddArgs& a);
  void run(const LayerNormArgs& a);
  void run(const MoeMlpArgs& a);
  void run(const ShortConvArgs& a);
  void run(const DeltaNetArgs& a);
  void run(const Mamba2Args& a);
  void run(const LayerInputArgs& a);
  void run(const LatentStoreArgs& a);
  void run(const HeadLinearArgs& a);
  void run(const AllReduceArgs& a);
  void run(const AllGatherArgs& a);
  void run(const PassOnArgs& /*a*/) {}

  // Ops that look ahead at the ops `after` them, and may store a private result in the form which those read.
  void run(const QkvRopeStoreArgs& a, std::span<const OpRecord> after);
  void run(const AttentionArgs& a, std::span<const OpRecord> after);

  // The same with arguments that only some families have (op_extras.h).
  void run_general(const LinearArgs& a);
  void run_general(const GatedMlpArgs& a);
  void run_general(const QkvRopeStoreArgs& a);
  void run_general(const AttentionArgs& a);
  // f(gate x) * (up x) of any activation into scratch memory, f32 [tokens, rows of up]; without a gate f(up x).
  [[nodiscard]] const float* activated_products(const GatedMlpArgs& a);
  // The product of one weight, normalized and scaled, and added to the residual.
  void project_and_finish(Linear job, const FinishRows& how);
  // Rows of x, or those of its norm in scratch memory.
  [[nodiscard]] const float* normed_rows(const Tensor& x, const Weight* norm, float eps);
  // Experts of some tokens.
  struct ExpertRows;
  void run_experts(const MoeMlpArgs& a, const ExpertRows& rows);
  [[nodiscard]] int pair_columns(const Weight& w, int64_t tokens) const;

  // Whether both ops together are one projection and one attention kernel.
  [[nodiscard]] static bool fuses(const QkvRopeStoreArgs& a, const AttentionArgs& b);
  void run_fused(const QkvRopeStoreArgs& a, const AttentionArgs& b, std::span<const OpRecord> after);

  // Layers of one decoded token as two kernels each (layer_ops.cpp): whether the first records are one; launches all
  // that are and returns the number of their ops.
  [[nodiscard]] bool is_layer(std::span<const OpRecord> records) const;
  [[nodiscard]] size_t run_layers(std::span<const OpRecord> records);
  void reserve_layers(const QkvRopeStoreArgs& a);
  // The same of 33 to 128 tokens, as attention and the products between it and the next one; quantized weights of a
  // layer are unpacked before.
  [[nodiscard]] bool is_batch_layer(std::span<const OpRecord> records) const;
  [[nodiscard]] size_t run_batch_layers(std::span<const OpRecord> records);
  void reserve_batch_layers();
  // Where the weights of the products after an attention are: those that are quantized are unpacked.
  void place_weights(const Weight* output, const GatedMlpArgs& mlp, const QkvRopeStoreArgs* next, BatchChain& p);

  [[nodiscard]] bool is_wide(const Linear& job) const;
  void project(const Linear& job);
  [[nodiscard]] static VectorProduct vector_of(const Linear& job, bool swiglu);
  void project_vector(const Linear& job, bool swiglu);
  void project_wide(const Linear& job);
  // silu(w[0] x) * (w[1] x) into out, rows out_stride elements of out_type apart.
  void gate_and_up(const Linear& job, DType out_type, int64_t out_stride, void* out);
  // The input of a linear in wide mode, converted.
  const void* prepare_wide(const Linear& job, DType type);
  // Weights [first, last) of a linear as a product of some tens of tokens, with bias and SwiGLU, and whether there is a
  // kernel for it.
  [[nodiscard]] static TileProduct tiles_of(const Linear& job, int first, int last, bool swiglu);
  [[nodiscard]] bool multiplies_tiles(const Linear& job, int first, int last, bool swiglu) const;
  void project_tiles(const Linear& job, int first, int last, bool swiglu);
  // The same of all weights, with an input x that is converted already.
  void multiply_tiles(const Linear& job, const void* x);
  // Makes a product of tiles store its result for the next op, too, where that begins with a norm and tiles.
  void share_norm(const Linear& job, TileProduct& p);
  // The product of the next op, where it begins with the norm of what `job` gives.
  [[nodiscard]] std::optional<Linear> normed_product_after(const Linear& job) const;
  // Where results of so many rows are stored for that: values, then squares.
  struct SharedNorm {
    void* x;
    float* squares;
  };
  [[nodiscard]] SharedNorm shared_norm(int64_t rows);
  // Products of a prompt's step (prompt_ops.cpp), where there is a kernel for them: all weights of a linear, with the
  // results that `p` names; those of heads before an attention; those added to a residual.
  [[nodiscard]] std::optional<PromptProduct> prompt_of(const Linear& job, PromptProduct p) const;
  [[nodiscard]] std::optional<PromptProduct> prompt_heads(const QkvRopeStoreArgs& a,
                                                          std::span<const OpRecord> after) const;
  [[nodiscard]] std::optional<PromptProduct> prompt_residual(const Linear& job) const;
  // Launches one; without an x the input is job's. Quantized weights of products after it are unpacked together with
  // its own.
  void run_prompt(const Linear& job, PromptProduct p, std::span<const Linear> after = {});
  // The other products of the layer that begins with such heads, if all are of this kind.
  [[nodiscard]] std::optional<std::array<Linear, 3>> prompt_layer(std::span<const OpRecord> after) const;
  // Puts quantized weights as bf16 into scratch memory, where they are not there yet.
  void unpack(const Linear& job, std::span<const Linear> after, PromptProduct& p);
  // The same of those among some weights, in the place of what was there; no more than kUnpackedBytes. `free`: all that
  // may still run when the next kernel starts does not read it.
  void unpack(std::span<const Weight* const> weights, bool free);
  // A weight's rows in bf16, or null where it is to be unpacked first.
  [[nodiscard]] const void* bf16_rows(const Weight* w) const;
  // Scratch memory for the weights of a layer, whose ops are planned one after another.
  void reserve_unpacked(const OpRecord& record);
  // Makes it store its result for the next op, too, where that begins with a norm and such a product.
  void share_prompt_norm(const Linear& job, PromptProduct& p);
  // Weights [first, last) of a linear, which are of one wide type, times x, which is of that type.
  void multiply_wide(const Linear& job, int first, int last, const void* x);
  struct WideBatch;
  // Unpacks and multiplies; the batch is then empty.
  void run(WideBatch& batch);
  // Raw q, k, v; returns where they are.
  RawHeads project_heads(const QkvRopeStoreArgs& a);
  [[nodiscard]] DecodeAttention decode_task(const AttentionArgs& b);
  // Of both ops, from raw projections.
  [[nodiscard]] DecodeAttention fused_task(const QkvRopeStoreArgs& a, const AttentionArgs& b, const RawHeads& raw);
  // Whether an attention of many tokens per sequence reads queries in the cache's type, on a GPU that has such a
  // kernel.
  [[nodiscard]] static bool attends_prompt(const AttentionArgs& a);
  // Makes the attention store its private result in the type that the linear after it reads.
  void narrow_output(AttentionTask& task, std::span<const OpRecord> after);
  // Makes the attention request the weights of the output projection after it into L2 where that helps.
  static void request_output(DecodeAttention& d, std::span<const OpRecord> after);

  [[nodiscard]] void* region(Region r, int64_t bytes) { return workspace_.get(r, bytes); }
  // Calls f(context) unless this is only planning.
  template <typename F>
  void enqueue(F f) {
    if (planning_) return;
    LaunchContext c = context_;
    c.overlap = c.overlap && !first_of_chain_;
    first_of_chain_ = false;
    f(c);
  }
  void enqueue(const Product& p);

  LaunchContext context_;
  Gemm gemm_;
  Workspace workspace_;
  RankExchange* exchange_ = nullptr;  // null: one rank
  bool planning_ = false;
  bool first_of_chain_ = true;

  // Private results that the last op stored in scratch memory instead of their tensors.
  const void* narrow_q_of_ = nullptr;  // this q is in Region::narrow_q, in the cache's type
  const void* wide_x_of_ = nullptr;    // this x is in Region::wide_x
  DType wide_x_type_ = DType::f32;
  bool took_private_ = false;
  // This x, multiplied with the weights of this norm, is in Region::normed_x: of the last op, and of this one.
  struct Normed {
    const void* x = nullptr;
    const Weight* norm = nullptr;
  };
  Normed normed_;
  Normed next_normed_;
  // Weights that are in Region::unpacked. All kernels after the product that they were unpacked for start after that is
  // done.
  struct Unpacked {
    const Weight* of = nullptr;
    const void* at = nullptr;
  };
  Unpacked unpacked_[kMaxUnpackPieces];
  int unpacked_count_ = 0;
  int64_t planned_bytes_ = 0;        // of a layer's unpacked weights
  std::span<const OpRecord> after_;  // ops after the one that is being launched
};

}  // namespace inferno::cuda
