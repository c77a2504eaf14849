// Partitions a product over the blocks of vector_stream_kernel, and launches it.
#pragma once

#include "backend/cuda/kernels/stream_few.cuh"

namespace inferno::cuda {

// kColumns: 1, or the most tokens of stream_columns_kernel; kFew: 1, or the tokens of stream_few_kernel. False: not for
// this kernel.
template <DType F, DType F2, bool kSwiglu, int kColumns = 1, int kFew = 1>
bool launch_stream(const LaunchContext& c, const VectorProduct& p) {
  static_assert(stream_activation<F>() == stream_activation<F2>());
  constexpr int kParts = kSwiglu ? 2 : 1;
  if (p.k % (on_tensor_cores(F) ? 64 : 8) != 0) return false;
  const int segments = kSwiglu ? 1 : p.segments;
  StreamParams a;
  a.p = p;
  a.units = divide_up(p.k, kUnit);
  constexpr bool kTiles = on_tensor_cores(F) || kColumns > 1;
  constexpr int kPad = kColumns > 1 && !on_tensor_cores(F) ? kRowPad : 0;
  if (kPad != 0 && p.k % (2 * kGroup) != 0) return false;  // groups are multiplied in pairs
  a.row_parts = kTiles || a.units > kStreamWarps ? kStreamWarps : a.units;
  a.row_step = kStreamWarps / a.row_parts;
  for (int w = 0; w < kStreamWarps; ++w) {
    a.unit_of_warp |= static_cast<uint32_t>(w % a.row_parts) << (4 * w);
    a.row_of_warp |= static_cast<uint32_t>(w / a.row_parts) << (4 * w);
  }
  a.x_bytes = activation_bytes(stream_activation<F>(), a.units);
  constexpr bool kSeveral = kColumns > 1 || kFew > 1;
  if constexpr (kSeveral) {
    a.column_bytes = column_bytes(stream_activation<F>(), a.units);
    a.x_bytes = p.tokens * a.column_bytes;
    while (p.tokens << (a.token_shift + 1) <= kStreamWarps) ++a.token_shift;
  }

  // Copies begin at multiples of 16 bytes.
  int64_t segment_bytes[kMaxSegments] = {};
  int64_t row_count = 0;
  int64_t byte_count = 0;
  const auto space_of = [&](int i, int rows) {
    const bool second = F != F2 && p.segment[i].dtype == F2;
    return kParts * (second ? chunk_space(row_bytes_of<F2>(p.segment[i].w), rows, kPad)
                            : chunk_space(row_bytes_of<F>(p.segment[i].w), rows, kPad));
  };
  for (int i = 0; i < segments; ++i) {
    const bool second = F != F2 && p.segment[i].dtype == F2;
    const RowBytes b = second ? row_bytes_of<F2>(p.segment[i].w) : row_bytes_of<F>(p.segment[i].w);
    for (const int row : {b.q, b.h, b.s, b.d}) {
      while (row * a.row_quantum % 16 != 0) a.row_quantum *= 2;
    }
    segment_bytes[i] = int64_t{p.segment[i].rows} * (b.q + b.h + b.s + b.d);
    row_count += p.segment[i].rows;
    byte_count += kParts * segment_bytes[i];
  }
  const auto most_space = [&](int rows) {
    int most = 0;
    for (int i = 0; i < segments; ++i) most = space_of(i, rows) > most ? space_of(i, rows) : most;
    return most;
  };

  // Blocks are assigned by bytes, or by rows where all bytes can be prefetched; more than one per multiprocessor only
  // where the sums do not fit in one, and two with very many rows, since the warps of one would unpack slower than
  // memory delivers. Several tokens: rows are finished in batches whose sums fit.
  const bool by_rows = byte_count / c.sm_count < kRingBytes / 2;
  const int sum_bytes = kParts * kColumns * kFew * a.row_parts * 4;  // of a row
  const bool pairs = kColumns == 1 && a.units < kLongUnits && row_count >= int64_t{kManyRows} * c.sm_count;
  int64_t blocks = pairs ? 2 * c.sm_count : c.sm_count;
  while (kColumns == 1 && divide_up(row_count, blocks) * sum_bytes > kSumBytes) blocks += c.sm_count;
  int64_t before = 0;
  int most_rows = 0;
  for (int i = 0; i < kMaxSegments; ++i) {
    int mine = 0;
    if (i < segments) {
      before += by_rows ? p.segment[i].rows : kParts * segment_bytes[i];
      mine = static_cast<int>(before * blocks / (by_rows ? row_count : byte_count)) - a.first_block[i];
      const int quanta = divide_up(p.segment[i].rows, a.row_quantum);
      mine = mine < 1 ? 1 : mine > quanta ? quanta : mine;
      a.quanta[i] = quanta / mine;
      a.longer[i] = quanta % mine;
      const int rows = divide_up(quanta, mine) * a.row_quantum;
      most_rows = rows > most_rows ? rows : most_rows;
    }
    a.first_block[i + 1] = a.first_block[i] + mine;
  }

  const auto align = [](int n) { return (n + 127) / 128 * 128; };
  a.batch_rows = kColumns > 1 && most_rows * sum_bytes > kBatchSumBytes ? kBatchSumBytes / sum_bytes : most_rows;
  a.sum_stride = a.batch_rows * kParts * kColumns;
  a.sum_bytes = align(a.batch_rows * sum_bytes);
  // Norm weights have the memory before the sums do.
  if (kSeveral && p.norm != nullptr && a.sum_bytes < 4 * p.k) a.sum_bytes = align(4 * p.k);
  const int fixed = 2 * kMaxStages * 8 + 32 * 4 + a.sum_bytes + a.x_bytes;
  const int shared_slot = p.residual != nullptr ? kResidualSlot : kStreamSlot;
  const int room = shared_slot - fixed;
  const int ring = kColumns == 1 && kRingBytes < room ? kRingBytes : room;

  // A chunk is what the warps process in one iteration, less where there are fewer rows or it would be too large.
  // Batches of quantized rows are multiplied whole; tiles need not be full.
  a.chunk_rows = kTiles ? (kSwiglu ? 8 : 16) : a.row_step * (kBatch / kParts);
  const int most = !kTiles ? kChunkBytes : ring / 2 > kLeastChunkBytes ? ring / 2 : kLeastChunkBytes;
  // One chunk of several tokens' product may be the whole ring: less would leave rows of a tile unused.
  const auto fits = [&](int rows) { return most_space(rows) <= (kColumns > 1 && rows >= most_rows ? ring : most); };
  while (a.chunk_rows > 1 && (a.chunk_rows >= 2 * most_rows || !fits(a.chunk_rows))) a.chunk_rows /= 2;
  if (a.chunk_rows < a.row_quantum) a.chunk_rows = a.row_quantum;
  a.batch = kParts * divide_up(a.chunk_rows, a.row_step);
  while (1 << a.chunk_shift < a.chunk_rows) ++a.chunk_shift;
  a.slot_bytes = align(most_space(a.chunk_rows));
  const int chunks = divide_up(most_rows, a.chunk_rows);
  const int least = chunks < 2 ? 1 : 2;
  const bool exclusive =
      (a.units >= kLongUnits && chunks * a.slot_bytes > ring) || (kColumns > 1 && least * a.slot_bytes > ring);
  const int fit = (exclusive ? kExclusiveSlot - fixed : ring) / a.slot_bytes;
  a.stages = chunks > fit ? (fit < least ? least : fit) : chunks;
  a.stages = a.stages > kMaxStages ? kMaxStages : a.stages;
  a.in_flight = (exclusive || chunks > a.stages ? kMaxBytesInFlight : kBytesInFlight) / a.slot_bytes;
  a.in_flight = a.in_flight < 1 ? 1 : a.in_flight > a.stages ? a.stages : a.in_flight;
  const int shared = fixed + a.stages * a.slot_bytes;
  if (shared > kMaxStreamBytes) return false;
  const int slot = exclusive ? kExclusiveSlot : shared_slot;
  const LaunchShape shape{dim3(static_cast<unsigned>(a.first_block[kMaxSegments])), dim3(kStreamThreads + kWarp),
                          shared < slot ? slot : shared};
  if constexpr (kFew > 1) {
    launch(c, shape, stream_few_kernel<F, kFew>, a);
  } else if constexpr (kColumns == 1) {
    launch(c, shape, vector_stream_kernel<F, F2, kSwiglu>, a);
  } else {
    launch(c, shape, stream_columns_kernel<F, F2, kSwiglu, kColumns>, a);
  }
  return true;
}

}  // namespace inferno::cuda
