// OpRunner's products in wide mode.
#include <algorithm>

#include "backend/cuda/op_runner.h"
#include "backend/cuda/op_support.h"

namespace inferno::cuda {

// What is multiplied at a time: one product per run of rows that are contiguous, as weights and as results, and the
// rows that are unpacked for them.
struct OpRunner::WideBatch {
  UnpackTask unpack;
  int64_t unpacked = 0;  // rows in memory
  Product product[kMaxSegments];
  int products = 0;
};

void OpRunner::run(WideBatch& batch) {
  if (batch.unpack.pieces > 0) enqueue([&](const LaunchContext& c) { launch_unpack_bf16(c, batch.unpack); });
  for (int i = 0; i < batch.products; ++i) enqueue(batch.product[i]);
  batch = {};
}

void OpRunner::multiply_wide(const Linear& job, int first, int last, const void* x) {
  const DType type = wide_type(job.w[first]->dtype());
  const int64_t stride = wide_stride(type, job.k);
  const int64_t out_size = size_of(job.out_type);
  WideBatch batch;
  const auto add = [&](const void* rows, int64_t count, int segment, int64_t first_row) {
    void* out = static_cast<char*>(job.out[segment]) + first_row * out_size;
    const int64_t out_stride = job.out_stride != 0 ? job.out_stride : job.w[segment]->rows();
    if (batch.products > 0) {
      Product& p = batch.product[batch.products - 1];
      if (static_cast<const char*>(p.w) + p.n * stride * size_of(type) == rows &&
          static_cast<char*>(p.y) + p.n * out_size == out && p.ldy == out_stride) {
        p.n += count;
        return;
      }
    }
    batch.product[batch.products++] = {.m = job.tokens,
                                       .n = count,
                                       .k = stride,
                                       .in = type,
                                       .out = job.out_type,
                                       .x = x,
                                       .ldx = stride,
                                       .w = rows,
                                       .ldw = stride,
                                       .y = out,
                                       .ldy = out_stride,
                                       .add = job.residual == nullptr ? nullptr : job.residual + first_row};
  };
  int64_t quantized = 0;
  for (int i = first; i < last; ++i) quantized += is_quantized(job.w[i]->dtype()) ? job.w[i]->rows() : 0;
  const int64_t capacity = std::min(quantized, std::max<int64_t>(1, kUnpackedValues / job.k));
  auto* unpacked =
      quantized == 0 ? nullptr : static_cast<char*>(region(Region::unpacked, capacity * job.k * size_of(type)));
  if (unpacked != nullptr) unpacked_count_ = 0;
  for (int i = first; i < last; ++i) {
    const CudaWeight& weight = on_device(job.w[i]);
    if (!is_quantized(weight.dtype())) {
      add(weight.planes().q, weight.rows(), i, 0);
      continue;
    }
    if (batch.unpack.pieces > 0 && batch.unpack.dtype != weight.dtype()) run(batch);
    for (int64_t row = 0; row < weight.rows();) {
      if (batch.unpacked == capacity) run(batch);
      const int64_t count = std::min(capacity - batch.unpacked, weight.rows() - row);
      void* to = unpacked + batch.unpacked * job.k * size_of(type);
      batch.unpack.dtype = weight.dtype();
      batch.unpack.piece[batch.unpack.pieces++] = {.w = weight.planes(), .first = row, .count = count, .out = to};
      add(to, count, i, row);
      batch.unpacked += count;
      row += count;
    }
  }
  run(batch);
}

const void* OpRunner::prepare_wide(const Linear& job, DType type) {
  const int64_t stride = wide_stride(type, job.k);
  void* x = region(Region::wide_x, job.tokens * stride * size_of(type));
  const bool ready = wide_x_of_ == job.x && wide_x_type_ == type && job.norm == nullptr;
  wide_x_of_ = nullptr;
  took_private_ = took_private_ || ready;
  if (!ready) {
    enqueue([&](const LaunchContext& c) {
      launch_prepare_rows(c, job.x, job.row_ids, vector_or_null(job.norm), job.eps, job.tokens, job.k, type, stride, x);
    });
  }
  return x;
}

TileProduct OpRunner::tiles_of(const Linear& job, int first, int last, bool swiglu) {
  TileProduct p{.tokens = static_cast<int>(std::min<int64_t>(job.tokens, kMaxTileTokens + 1)),
                .k = static_cast<int>(job.k),
                .segments = last - first,
                .out_type = job.out_type,
                .residual = job.residual,
                .swiglu = swiglu};
  for (int i = first; i < last; ++i) {
    p.segment[i - first] = {.w = on_device(job.w[i]).planes(),
                            .dtype = job.w[i]->dtype(),
                            .rows = static_cast<int>(job.w[i]->rows()),
                            .bias = vector_or_null(job.bias[i]),
                            .out = job.out[i],
                            .out_stride = job.out_stride != 0 ? job.out_stride : job.w[i]->rows()};
  }
  return p;
}

bool OpRunner::multiplies_tiles(const Linear& job, int first, int last, bool swiglu) const {
  return tile_product_fits(context_, tiles_of(job, first, last, swiglu));
}

OpRunner::SharedNorm OpRunner::shared_norm(int64_t rows) {
  const int64_t parts = (rows + kPromptSquaresRows - 1) / kPromptSquaresRows;  // the smaller ones
  return {.x = region(Region::normed_x, kMaxPromptTokens * rows * size_of(DType::bf16)),
          .squares = static_cast<float*>(region(Region::squares, kMaxPromptTokens * parts * size_of(DType::f32)))};
}

std::optional<OpRunner::Linear> OpRunner::normed_product_after(const Linear& job) const {
  if (after_.empty() || job.count != 1 || job.residual == nullptr) return std::nullopt;
  const bool mlp = after_[0].op() == OpId::gated_mlp;
  if (!mlp && after_[0].op() != OpId::qkv_rope_store) return std::nullopt;
  const Linear next =
      mlp ? device::gate_up_of(after_[0].args<GatedMlpArgs>()) : device::product_of(after_[0].args<QkvRopeStoreArgs>());
  if (next.x != job.out[0] || next.norm == nullptr || next.tokens != job.tokens) return std::nullopt;
  return next;
}

void OpRunner::share_norm(const Linear& job, TileProduct& p) {
  if (p.out_type != DType::f32) return;
  const std::optional<Linear> after = normed_product_after(job);
  if (!after) return;
  const Linear& next = *after;
  if (!multiplies_tiles(next, 0, next.count, after_[0].op() == OpId::gated_mlp)) return;
  const SharedNorm shared = shared_norm(next.k);
  p.next_norm = vector_or_null(next.norm);
  p.next_x = shared.x;
  p.next_squares = shared.squares;
  next_normed_ = {next.x, next.norm};
}

void OpRunner::multiply_tiles(const Linear& job, const void* x) {
  TileProduct p = tiles_of(job, 0, job.count, false);
  p.x = x;
  share_norm(job, p);
  enqueue([&](const LaunchContext& c) { launch_tile_product(c, p); });
}

void OpRunner::project_tiles(const Linear& job, int first, int last, bool swiglu) {
  TileProduct p = tiles_of(job, first, last, swiglu);
  if (job.norm != nullptr && job.row_ids == nullptr && normed_.x == job.x && normed_.norm == job.norm) {
    const SharedNorm shared = shared_norm(job.k);
    p.x = shared.x;
    p.squares = shared.squares;
    p.eps = job.eps;
    wide_x_of_ = nullptr;
    took_private_ = true;
  } else if (job.norm != nullptr && job.row_ids == nullptr && tile_product_normalizes(context_, p)) {
    p.x = job.x;
    p.norm = vector_or_null(job.norm);
    p.eps = job.eps;
    wide_x_of_ = nullptr;
  } else {
    p.x = prepare_wide(job, DType::bf16);
  }
  share_norm(job, p);
  enqueue([&](const LaunchContext& c) { launch_tile_product(c, p); });
}

void OpRunner::project_wide(const Linear& job) {
  if (const auto prompt = planning_ ? std::nullopt : prompt_residual(job)) return run_prompt(job, *prompt);
  bool adds_bias[kMaxSegments] = {};
  for (int i = 0; i < job.count;) {
    const DType type = wide_type(job.w[i]->dtype());
    int end = i + 1;
    while (end < job.count && wide_type(job.w[end]->dtype()) == type) ++end;
    if (multiplies_tiles(job, i, end, false)) {
      project_tiles(job, i, end, false);
    } else {
      multiply_wide(job, i, end, prepare_wide(job, type));
      for (int j = i; j < end; ++j) adds_bias[j] = job.bias[j] != nullptr;
    }
    i = end;
  }
  for (int i = 0; i < job.count; ++i) {
    if (!adds_bias[i]) continue;
    enqueue([&](const LaunchContext& c) {
      const int64_t rows = job.w[i]->rows();
      launch_add_bias(c, static_cast<float*>(job.out[i]), vector_or_null(job.bias[i]), job.tokens, rows,
                      job.out_stride != 0 ? job.out_stride : rows);
    });
  }
}

}  // namespace inferno::cuda
