#include "model/tensor_source.h"

#include <algorithm>

#include "base/error.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

int64_t columns_of(const Shape& shape) {
  return shape.rank == 1 ? 1 : shape.cols();
}

// The range of one rank among the rows or columns of a weight; `heads` is what they belong to, if to heads.
struct Range64 {
  int64_t begin = 0;
  int64_t count = 0;
};
Range64 scaled(const Part& part, int64_t elements, int32_t parts) {
  const int64_t each = elements / parts;
  return {part.begin * each, part.count * each};
}

uint64_t bytes_of(const ModelFile& file, const Selection& wanted) {
  const FileTensor* tensor = file.find_tensor(wanted.tensor);
  if (tensor == nullptr || !tensor->dtype) return 0;  // loading tells
  const Shape& shape = wanted.shape;
  if (shape.rank == 1) return static_cast<uint64_t>(row_bytes(*tensor->dtype, shape.elements()));
  return static_cast<uint64_t>(shape.rows() * row_bytes(*tensor->dtype, shape.cols()));
}

void take_rows(const Range64& range, Selection& wanted, int64_t blocks) {
  wanted.first_row += range.begin;
  wanted.rows = range.count;
  Shape& shape = wanted.shape;
  if (shape.rank == 3) {
    shape.dims[1] = range.count;
  } else {
    shape.dims[0] = blocks * range.count;
  }
}

}  // namespace

Selection select_whole(std::string name, const Shape& shape) {
  return {.name = std::move(name), .shape = shape};
}

Selection select_rows(std::string name, const Shape& shape, const Part& rows) {
  Selection wanted = select_whole(std::move(name), shape);
  if (rows.count == shape[0]) return wanted;
  wanted.block_rows = shape[0];
  take_rows({rows.begin, rows.count}, wanted, 1);
  return wanted;
}

std::optional<Selection> select_share(const LayerTensor& tensor, int32_t index, const LayerConfig& layer,
                                      const ModelShare& share) {
  if (tensor.split == SplitBy::first_rank && share.rank != 0) return std::nullopt;
  Selection wanted = select_whole(layer_tensor_name(index, tensor.part), tensor.shape);
  wanted.layer = index;
  const bool is_fused = !tensor.fused_part.empty();
  const Shape& whole = tensor.shape;
  // Matrices of experts are blocks, as are the parts of their biases.
  const bool has_matrices = whole.rank == 3;
  const int64_t blocks = has_matrices ? whole[0] : tensor.file_shape.rank == 2 ? tensor.file_shape[0] : tensor.blocks;
  const int64_t rows = has_matrices ? whole[1] : whole[0] / blocks;
  if (is_fused) {
    wanted.tensor = layer_tensor_name(index, tensor.fused_part);
    wanted.tensor_shape.dims[has_matrices ? 1 : 0] = tensor.fused_rows * tensor.blocks;
  }
  if (tensor.file_shape.rank > 0) wanted.tensor_shape = tensor.file_shape;
  const bool is_split = share.divides() && tensor.split != SplitBy::whole && tensor.split != SplitBy::first_rank;
  if (!is_fused && !is_split) return wanted;

  wanted.block_rows = is_fused ? tensor.fused_rows : rows;
  wanted.first_row = tensor.first_row;
  wanted.rows = rows;
  if (!is_split) return wanted;
  const LayerShare& own = share.layers[static_cast<size_t>(index)];
  switch (tensor.split) {
    case SplitBy::q_rows:
      // Where the rows of each head are a block, whole blocks are taken.
      if (tensor.blocks > 1) {
        wanted.first_block = own.q_heads.begin;
        wanted.shape.dims[0] = own.q_heads.count * rows;
      } else {
        take_rows(scaled(own.q_heads, rows, layer.q_heads), wanted, 1);
      }
      break;
    case SplitBy::kv_rows:
      take_rows(scaled(own.kv_heads, rows, layer.kv_heads), wanted, 1);
      break;
    case SplitBy::ffn_rows:
      take_rows({own.ffn.begin, own.ffn.count}, wanted, blocks);
      break;
    case SplitBy::shared_rows:
      take_rows({own.shared_ffn.begin, own.shared_ffn.count}, wanted, 1);
      break;
    default: {
      const Range64 columns = tensor.split == SplitBy::q_columns ? scaled(own.q_heads, whole.cols(), layer.q_heads)
                              : tensor.split == SplitBy::ffn_columns
                                  ? Range64{own.ffn.begin, own.ffn.count}
                                  : Range64{own.shared_ffn.begin, own.shared_ffn.count};
      wanted.first_column = columns.begin;
      wanted.shape.dims[whole.rank - 1] = columns.count;
    }
  }
  return wanted;
}

uint64_t share_bytes(const ModelFile& file, const ModelConfig& whole, const ModelShare& share, int32_t layer) {
  uint64_t bytes = 0;
  if (layer == kNoLayer ? !share.has_ends() : !share.has_layer(layer)) return 0;
  if (layer == kNoLayer) {
    const Shape table(share.vocabulary.count, whole.width);
    for (const std::string_view name : {kEmbeddingTensor, kHeadTensor}) {
      bytes += bytes_of(file, select_whole(std::string(name), table));
    }
    return bytes + bytes_of(file, select_whole(std::string(whole.output_norm_tensor), Shape(whole.width)));
  }
  const LayerConfig& config = whole.layers[static_cast<size_t>(layer)];
  for (const LayerTensor& tensor : layer_tensors(whole, layer)) {
    const std::optional<Selection> wanted = select_share(tensor, layer, config, share);
    if (wanted) bytes += bytes_of(file, *wanted);
  }
  return bytes;
}

uint64_t share_bytes(const ModelFile& file, const ModelConfig& whole, const ModelShare& share) {
  uint64_t bytes = share_bytes(file, whole, share, kNoLayer);
  for (int32_t i = 0; i < whole.layer_count(); ++i) bytes += share_bytes(file, whole, share, i);
  return bytes;
}

TensorSource::TensorSource(const ModelFile& file, const FileTensor& tensor, const Selection& wanted)
    : file_(file), tensor_(tensor), wanted_(wanted) {
  if (wanted.is_whole()) return;
  const int64_t file_columns = wanted.shape.rank == 1 ? 1 : columns_of(tensor.shape);
  row_bytes_ = static_cast<uint64_t>(row_bytes(*tensor.dtype, columns_of(wanted.shape)));
  file_row_bytes_ = static_cast<uint64_t>(row_bytes(*tensor.dtype, file_columns));
  if (wanted.first_column > 0) column_offset_ = static_cast<uint64_t>(row_bytes(*tensor.dtype, wanted.first_column));
}

// Rows that follow each other in the file are read at once.
void TensorSource::read(uint64_t offset, std::span<std::byte> out) const {
  if (wanted_.is_whole()) {
    file_.read_tensor(tensor_, out, offset);
    return;
  }
  INFERNO_CHECK(offset % row_bytes_ == 0);
  const auto rows = static_cast<uint64_t>(wanted_.rows);
  const bool whole_rows = row_bytes_ == file_row_bytes_;
  for (uint64_t row = offset / row_bytes_; !out.empty();) {
    const uint64_t block = static_cast<uint64_t>(wanted_.first_block) + row / rows;
    const uint64_t in_block = row % rows;
    const uint64_t file_row =
        block * static_cast<uint64_t>(wanted_.block_rows) + static_cast<uint64_t>(wanted_.first_row) + in_block;
    const uint64_t together = whole_rows ? rows - in_block : 1;
    const auto bytes = static_cast<size_t>(std::min<uint64_t>(together * row_bytes_, out.size()));
    file_.read_tensor(tensor_, out.first(bytes), file_row * file_row_bytes_ + column_offset_);
    out = out.subspan(bytes);
    row += together;
  }
}

}  // namespace inferno
