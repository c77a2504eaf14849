// Partitions a product over the blocks of one of the kernels that stream weights, and launches it.
#pragma once

#include "backend/cuda/kernels/long_stream.cuh"
#include "backend/cuda/kernels/stream_few.cuh"

namespace inferno::cuda {

[[nodiscard]] constexpr int align_stream(int bytes) {
  return (bytes + 127) / 128 * 128;
}

// The rows of a product's segments and their bytes.
template <DType F, DType F2, bool kSwiglu, int kPad = 0>
class StreamRows {
 public:
  explicit StreamRows(const VectorProduct& p) : p_(p), segments_(kSwiglu ? 1 : p.segments) {
    for (int i = 0; i < segments_; ++i) {
      const RowBytes b = row_bytes(i);
      for (const int row : {b.q, b.h, b.s, b.d}) {
        while (row * quantum_ % 16 != 0) quantum_ *= 2;
      }
      segment_bytes_[i] = int64_t{kParts} * p.segment[i].rows * (b.q + b.h + b.s + b.d);
      rows_ += p.segment[i].rows;
      bytes_ += segment_bytes_[i];
    }
  }
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  // Copies begin at multiples of 16 bytes, so chunks at multiples of so many rows.
  [[nodiscard]] int quantum() const { return quantum_; }
  // Bytes of a chunk of `rows` rows, of any segment.
  [[nodiscard]] int space(int rows) const {
    int most = 0;
    for (int i = 0; i < segments_; ++i) {
      const int space = kParts * chunk_space(row_bytes(i), rows, kPad);
      most = space > most ? space : most;
    }
    return most;
  }
  // Gives the rows to about `blocks` blocks, by bytes, or by rows where the bytes can be prefetched whole. Returns the
  // most rows of a block.
  int assign(StreamParams& a, int64_t blocks) const {
    const bool by_rows = bytes_ / blocks < kRingBytes / 2;
    int64_t before = 0;
    int most_rows = 0;
    a.row_quantum = quantum_;
    for (int i = 0; i < kMaxSegments; ++i) {
      int mine = 0;
      if (i < segments_) {
        before += by_rows ? p_.segment[i].rows : segment_bytes_[i];
        mine = static_cast<int>(before * blocks / (by_rows ? rows_ : bytes_)) - a.first_block[i];
        const int quanta = divide_up(p_.segment[i].rows, quantum_);
        mine = mine < 1 ? 1 : mine > quanta ? quanta : mine;
        a.quanta[i] = quanta / mine;
        a.longer[i] = quanta % mine;
        const int rows = divide_up(quanta, mine) * quantum_;
        most_rows = rows > most_rows ? rows : most_rows;
      }
      a.first_block[i + 1] = a.first_block[i] + mine;
    }
    return most_rows;
  }

 private:
  static constexpr int kParts = kSwiglu ? 2 : 1;
  [[nodiscard]] RowBytes row_bytes(int i) const {
    const bool second = F != F2 && p_.segment[i].dtype == F2;
    return second ? row_bytes_of<F2>(p_.segment[i].w) : row_bytes_of<F>(p_.segment[i].w);
  }
  const VectorProduct& p_;
  int segments_;
  int quantum_ = 1;
  int64_t rows_ = 0;
  int64_t bytes_ = 0;
  int64_t segment_bytes_[kMaxSegments] = {};
};

// Barriers, one float per warp, sums, activations.
[[nodiscard]] inline int fixed_stream_bytes(const StreamParams& a) {
  return 2 * kMaxStages * 8 + 32 * 4 + a.sum_bytes + a.x_bytes;
}
inline void set_chunk_rows(StreamParams& a, int rows) {
  a.chunk_rows = rows < a.row_quantum ? a.row_quantum : rows;
  while (1 << a.chunk_shift < a.chunk_rows) ++a.chunk_shift;
}

// Whether a product of one token is for long_stream_kernel: of a model so large that its neighbours have long rows,
// too, or more weights than could arrive while earlier kernels run. Others are faster beside their neighbours.
[[nodiscard]] inline bool prefers_long_stream(const LaunchContext& c, int units, int64_t rows, int64_t bytes) {
  return units >= kLongUnits && (rows >= kLongUnits * kUnit || bytes / c.sm_count >= kRingBytes);
}
// False: not for this kernel.
template <DType F, DType F2, bool kSwiglu>
bool launch_long_stream(const LaunchContext& c, const VectorProduct& p) {
  constexpr int kParts = kSwiglu ? 2 : 1;
  const StreamRows<F, F2, kSwiglu> rows(p);
  StreamParams a;
  a.p = p;
  a.units = divide_up(p.k, kUnit);
  if (!prefers_long_stream(c, a.units, rows.rows(), rows.bytes())) return false;
  a.x_bytes = activation_bytes(stream_activation<F>(), a.units);
  const int sum_bytes = kParts * a.units * 4;  // of a row
  int64_t blocks = c.sm_count;
  while (divide_up(rows.rows(), blocks) * sum_bytes > kSumBytes) blocks += c.sm_count;
  const int most_rows = rows.assign(a, blocks);
  a.sum_bytes = align_stream(most_rows * sum_bytes);

  int chunk_rows = kBatch / kParts;
  while (rows.space(chunk_rows) < kLeastLongChunkBytes) chunk_rows *= 2;
  while (chunk_rows > 1 && (chunk_rows >= 2 * most_rows || rows.space(chunk_rows) > kLongChunkBytes)) chunk_rows /= 2;
  set_chunk_rows(a, chunk_rows);
  a.batch = kParts * a.chunk_rows;
  a.slot_bytes = align_stream(rows.space(a.chunk_rows));
  const int chunks = divide_up(most_rows, a.chunk_rows);
  const int fit = (kLongSlot - fixed_stream_bytes(a)) / a.slot_bytes;
  a.stages = chunks < fit ? chunks : fit < kMaxStages ? fit : kMaxStages;
  const int most = chunks > a.stages ? a.stages - chunks_between_items(a.units) : a.stages;
  if (most < 1) return false;
  a.in_flight = kMaxBytesInFlight / a.slot_bytes;
  a.in_flight = a.in_flight < 1 ? 1 : a.in_flight < most ? a.in_flight : most;
  launch(c, {dim3(static_cast<unsigned>(a.first_block[kMaxSegments])), dim3(kLongThreads + kWarp), kLongSlot},
         long_stream_kernel<F, F2, kSwiglu>, a);
  return true;
}

// kColumns: 1, or the most tokens of stream_columns_kernel; kFew: 1, or the tokens of stream_few_kernel. False: not for
// this kernel.
template <DType F, DType F2, bool kSwiglu, int kColumns = 1, int kFew = 1>
bool launch_stream(const LaunchContext& c, const VectorProduct& p) {
  static_assert(stream_activation<F>() == stream_activation<F2>());
  constexpr int kParts = kSwiglu ? 2 : 1;
  if (p.k % (on_tensor_cores(F) ? 64 : 8) != 0) return false;
  constexpr bool kTiles = on_tensor_cores(F) || kColumns > 1;
  constexpr int kPad = kColumns > 1 && !on_tensor_cores(F) ? kRowPad : 0;
  if (kPad != 0 && p.k % (2 * kGroup) != 0) return false;  // groups are multiplied in pairs
  if constexpr (!kTiles && kFew == 1) {
    if (launch_long_stream<F, F2, kSwiglu>(c, p)) return true;
  }
  const StreamRows<F, F2, kSwiglu, kPad> rows(p);
  StreamParams a;
  a.p = p;
  a.units = divide_up(p.k, kUnit);
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

  // More than one block per multiprocessor only where the sums do not fit in one, and two with very many rows, since
  // the warps of one would unpack slower than memory delivers. Several tokens: rows are finished in batches whose sums
  // fit.
  const int sum_bytes = kParts * kColumns * kFew * a.row_parts * 4;  // of a row
  const bool pairs = kColumns == 1 && a.units < kLongUnits && rows.rows() >= int64_t{kManyRows} * c.sm_count;
  int64_t blocks = pairs ? 2 * c.sm_count : c.sm_count;
  while (kColumns == 1 && divide_up(rows.rows(), blocks) * sum_bytes > kSumBytes) blocks += c.sm_count;
  const int most_rows = rows.assign(a, blocks);

  a.batch_rows = kColumns > 1 && most_rows * sum_bytes > kBatchSumBytes ? kBatchSumBytes / sum_bytes : most_rows;
  a.sum_stride = a.batch_rows * kParts * kColumns;
  a.sum_bytes = align_stream(a.batch_rows * sum_bytes);
  // Norm weights have the memory before the sums do.
  if (kSeveral && p.norm != nullptr && a.sum_bytes < 4 * p.k) a.sum_bytes = align_stream(4 * p.k);
  const int fixed = fixed_stream_bytes(a);
  const int shared_slot = p.residual != nullptr ? kResidualSlot : kStreamSlot;
  const int room = shared_slot - fixed;
  const int ring = kColumns == 1 && kRingBytes < room ? kRingBytes : room;

  // A chunk is what the warps process in one iteration, less where there are fewer rows or it would be too large.
  // Batches of quantized rows are multiplied whole; tiles need not be full.
  int chunk_rows = kTiles ? (kSwiglu ? 8 : 16) : a.row_step * (kBatch / kParts);
  const int most = !kTiles ? kChunkBytes : ring / 2 > kLeastChunkBytes ? ring / 2 : kLeastChunkBytes;
  // One chunk of several tokens' product may be the whole ring: less would leave rows of a tile unused.
  const auto fits = [&](int n) { return rows.space(n) <= (kColumns > 1 && n >= most_rows ? ring : most); };
  while (chunk_rows > 1 && (chunk_rows >= 2 * most_rows || !fits(chunk_rows))) chunk_rows /= 2;
  set_chunk_rows(a, chunk_rows);
  a.batch = kParts * divide_up(a.chunk_rows, a.row_step);
  a.slot_bytes = align_stream(rows.space(a.chunk_rows));
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
