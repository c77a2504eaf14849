#include "hf/piece.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"

namespace inferno::hf {
namespace {

Axes dense(int64_t count, int64_t step) {
  return {Axis{}, Axis{}, Axis{count, step}};
}

bool is_any_of(Change change, std::initializer_list<Change> list) {
  return std::ranges::find(list, change) != list.end();
}

// Tensors that are kept exact whatever the others are: small, or what everything else depends on.
bool is_always_f32(std::string_view name, const Shape& shape) {
  constexpr std::string_view kSuffixes[] = {"_norm.weight",
                                            ".bias",
                                            "ffn_gate_inp.weight",
                                            "ffn_gate_inp_shexp.weight",
                                            "ssm_conv1d.weight",
                                            "shortconv.conv.weight",
                                            "ssm_a",
                                            "ssm_d"};
  return shape.rank <= 1 ||
         std::ranges::any_of(kSuffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
}

}  // namespace

PieceMaker::PieceMaker(const Config& config, const Family& family, const Safetensors& stored)
    : config_(config), family_(family), stored_(stored) {
  const auto read = [&](std::string_view key) -> int64_t {
    constexpr uint32_t kMost = 65536;  // so that products of three of them fit
    const uint32_t size = config.find_uint(key).value_or(0);
    if (size > kMost) config.reject(key, "at most 65536");
    return size;
  };
  key_heads_ = read("linear_num_key_heads");
  value_heads_ = read("linear_num_value_heads");
  key_dim_ = read("linear_key_head_dim");
  value_dim_ = read("linear_value_head_dim");
  groups_ = config.find_uint_of({"mamba_n_groups", "n_groups"}).value_or(0);
}

void PieceMaker::reject(const StoredTensor& source, std::string_view problem) const {
  std::string shape;
  for (size_t i = 0; i < std::min<size_t>(source.rank, source.dims.size()); ++i)
    shape += fmt::format("{}{}", i == 0 ? "" : ",", source.dims[i]);
  fail("\"{}\": tensor \"{}\" ({} [{}]) {}", config_.path(), printable(source.name, 200), stored_type_name(source.type),
       shape, problem);
}

HfTensor PieceMaker::make(const StoredTensor& source, Change change, const std::string& name,
                          const ScaleBlock& block) const {
  const auto dims = std::span(source.dims).first(std::min<size_t>(source.rank, source.dims.size()));
  if (source.rank < 1 || source.rank > source.dims.size() || std::ranges::count(dims, 0) > 0)
    reject(source, "must have one to four dimensions of 1 or more");
  HfTensor tensor;
  tensor.name = name;
  if (change == Change::plus_one && family_.plus_one) tensor.recipe.values = Values::plus_one;
  if (is_any_of(change, {Change::minus_exp, Change::minus_exp_v_heads, Change::minus_exp_column}))
    tensor.recipe.values = Values::minus_exp;
  if (is_any_of(change, {Change::mxfp4, Change::mxfp4_even, Change::mxfp4_odd})) {
    make_mxfp4(source, change, tensor);
  } else if (is_any_of(change, {Change::grouped_qkv, Change::grouped_z})) {
    make_grouped(source, change, tensor);
  } else if (is_any_of(change, {Change::latent_keys, Change::latent_values})) {
    make_latent(source, change, tensor);
  } else if (is_any_of(change, {Change::transposed, Change::transposed_even, Change::transposed_odd}) ||
             (source.rank == 3 && source.dims[1] != 1)) {
    make_experts(source, change, tensor);
  } else if (source.rank == 1) {
    make_vector(source, change, tensor);
  } else {
    make_matrix(source, change, tensor);
  }
  const DType dtype = tensor.recipe.mxfp4 ? DType::mxfp4 : type_of(source, tensor);
  tensor.dtype = dtype;
  tensor.type_name = dtype_name(dtype);
  tensor.bytes = static_cast<uint64_t>(tensor.shape.rows() * row_bytes(dtype, tensor.shape.cols()));
  add_scale(source, block, tensor);
  return tensor;
}

DType PieceMaker::type_of(const StoredTensor& source, const HfTensor& tensor) const {
  switch (source.type) {
    case StoredType::f32:
    case StoredType::f64:
      return DType::f32;
    case StoredType::f16:
    case StoredType::bf16:
    case StoredType::f8_e4m3:
    case StoredType::f8_e5m2:
      if (is_always_f32(tensor.name, tensor.shape)) return DType::f32;
      return source.type == StoredType::f16 ? DType::f16 : DType::bf16;
    default:
      reject(source, "is of a type that is not read as weights (read: F32, F16, BF16, F8_E4M3, F8_E5M2)");
  }
}

Axes PieceMaker::rope_order(const StoredTensor& source, int64_t heads, int64_t count, int64_t step) const {
  if (heads == 0 || count % heads != 0 || count / heads % 2 != 0) reject(source, "does not consist of that many heads");
  const int64_t head_dim = count / heads;
  return {Axis{heads, head_dim * step}, Axis{head_dim / 2, step}, Axis{2, head_dim / 2 * step}};
}

Axes PieceMaker::value_head_order(const StoredTensor& source, int64_t count, int64_t step) const {
  if (key_heads_ == 0 || value_heads_ == 0 || value_heads_ % key_heads_ != 0 || count % value_heads_ != 0 || count == 0)
    reject(source, "does not consist of that many heads of the linear layers");
  const int64_t each = count / value_heads_ * step;
  const int64_t ratio = value_heads_ / key_heads_;
  return {Axis{ratio, each}, Axis{key_heads_, ratio * each}, Axis{count / value_heads_, step}};
}

Axes PieceMaker::order(const StoredTensor& source, Change change, int64_t count, int64_t step) const {
  switch (change) {
    case Change::rope_q:
      if (family_.rope_pairs) return rope_order(source, config_.heads(), count, step);
      break;
    case Change::rope_k:
      if (family_.rope_pairs) return rope_order(source, config_.kv_heads(), count, step);
      break;
    case Change::v_heads:
    case Change::minus_exp_v_heads:
      return value_head_order(source, count, step);
    default:
      break;
  }
  return dense(count, step);
}

void PieceMaker::make_vector(const StoredTensor& source, Change change, HfTensor& tensor) const {
  const int64_t count = source.dims[0];
  int64_t rows = 1;
  if (is_any_of(change, {Change::column, Change::minus_exp_column})) rows = count;
  if (change == Change::groups) rows = groups_;
  if (rows == 0 || count % rows != 0) reject(source, "does not consist of that many groups");
  const bool is_matrix = is_any_of(change, {Change::column, Change::minus_exp_column, Change::groups});
  tensor.shape = is_matrix ? Shape(rows, count / rows) : Shape(count);
  tensor.recipe.pieces.push_back(
      {.source = &source, .rows = dense(rows, count / rows), .columns = order(source, change, count / rows, 1)});
}

// A matrix, or one of [rows, 1, columns].
void PieceMaker::make_matrix(const StoredTensor& source, Change change, HfTensor& tensor) const {
  if (source.rank > 3) reject(source, "must be a matrix");
  const int64_t rows = source.dims[0];
  const int64_t columns = source.elements() / rows;
  tensor.shape = Shape(rows, columns);
  Piece piece{.source = &source, .rows = dense(rows, columns), .columns = dense(columns, 1)};
  switch (change) {
    case Change::v_columns:
      piece.columns = value_head_order(source, columns, 1);
      break;
    case Change::v_heads_after_qk: {
      const int64_t others = 2 * key_heads_ * key_dim_;
      if (others == 0 || others >= rows) reject(source, "has too few rows for the heads of the linear layers");
      piece.rows = dense(others, columns);
      tensor.recipe.pieces.push_back(piece);
      piece.base = others * columns;
      piece.rows = value_head_order(source, rows - others, columns);
      break;
    }
    case Change::first_half:
    case Change::second_half:
      if (rows % 2 != 0) reject(source, "must have an even number of rows");
      tensor.shape = Shape(rows / 2, columns);
      piece.base = change == Change::second_half ? rows / 2 * columns : 0;
      piece.rows = dense(rows / 2, columns);
      break;
    case Change::even_columns:
    case Change::odd_columns:
      if (columns % 2 != 0) reject(source, "must have an even number of columns");
      tensor.shape = Shape(rows, columns / 2);
      piece.base = change == Change::odd_columns ? 1 : 0;
      piece.columns = dense(columns / 2, 2);
      break;
    default:
      piece.rows = order(source, change, rows, columns);
  }
  tensor.recipe.pieces.push_back(piece);
}

void PieceMaker::make_grouped(const StoredTensor& source, Change change, HfTensor& tensor) const {
  if (source.rank != 2 || key_heads_ == 0 || value_heads_ % key_heads_ != 0)
    reject(source, "is not in groups of heads");
  const int64_t columns = source.dims[1];
  const int64_t values = value_heads_ / key_heads_ * value_dim_;  // rows of v, and of z, in a group
  const int64_t group = 2 * key_dim_ + 2 * values;
  if (key_dim_ == 0 || values == 0 || source.dims[0] != key_heads_ * group) reject(source, "is not in groups of heads");
  const auto part = [&](int64_t first_row, int64_t rows) {
    tensor.recipe.pieces.push_back({.source = &source,
                                    .base = first_row * columns,
                                    .rows = {Axis{}, Axis{key_heads_, group * columns}, Axis{rows, columns}},
                                    .columns = dense(columns, 1)});
  };
  if (change == Change::grouped_z) {
    part(2 * key_dim_ + values, values);
    tensor.shape = Shape(key_heads_ * values, columns);
    return;
  }
  part(0, key_dim_);
  part(key_dim_, key_dim_);
  part(2 * key_dim_, values);
  tensor.shape = Shape(key_heads_ * (2 * key_dim_ + values), columns);
}

// (heads, rows of keys and of values, rank): keys become (heads, rank, elements), values (heads, elements, rank).
void PieceMaker::make_latent(const StoredTensor& source, Change change, HfTensor& tensor) const {
  const int64_t heads = config_.heads();
  const int64_t keys = config_.get_uint("qk_nope_head_dim");
  const int64_t values = config_.get_uint("v_head_dim");
  if (source.rank != 2 || heads == 0 || keys == 0 || values == 0 || source.dims[0] % heads != 0 ||
      source.dims[0] / heads != keys + values)
    reject(source, "does not consist of that many heads of keys and values");
  const int64_t rank = source.dims[1];
  const bool is_keys = change == Change::latent_keys;
  tensor.shape = is_keys ? Shape(heads, rank, keys) : Shape(heads, values, rank);
  // A piece for each head: a row of keys is spread over its whole matrix.
  for (int64_t h = 0; h < heads; ++h) {
    tensor.recipe.pieces.push_back({.source = &source,
                                    .base = (h * (keys + values) + (is_keys ? 0 : keys)) * rank,
                                    .rows = is_keys ? dense(rank, 1) : dense(values, rank),
                                    .columns = is_keys ? dense(keys, rank) : dense(rank, 1)});
  }
}

// All experts in one: (experts, rows, columns).
void PieceMaker::make_experts(const StoredTensor& source, Change change, HfTensor& tensor) const {
  if (source.rank != 3) reject(source, "must have three dimensions");
  const auto [experts, first, second, unused] = source.dims;
  const Axis each{experts, first * second};
  Piece piece{.source = &source, .rows = {Axis{}, each, Axis{first, second}}, .columns = dense(second, 1)};
  tensor.shape = Shape(experts, first, second);
  const bool odd = is_any_of(change, {Change::second_half, Change::transposed_odd});
  if (is_any_of(change, {Change::first_half, Change::second_half})) {
    if (first % 2 != 0) reject(source, "must have an even number of rows");
    piece.base = odd ? first / 2 * second : 0;
    piece.rows = {Axis{}, each, Axis{first / 2, second}};
    tensor.shape = Shape(experts, first / 2, second);
  } else if (change != Change::none) {
    const int64_t step = change == Change::transposed ? 1 : 2;
    if (second % step != 0) reject(source, "must have an even number of columns");
    tensor.shape = Shape(experts, second / step, first);
    tensor.recipe.pieces.clear();
    // A piece for each expert: a row of one is spread over its whole matrix.
    for (int64_t e = 0; e < experts; ++e) {
      tensor.recipe.pieces.push_back({.source = &source,
                                      .base = e * first * second + (odd ? 1 : 0),
                                      .rows = dense(second / step, step),
                                      .columns = dense(first, second)});
    }
    return;
  }
  tensor.recipe.pieces.push_back(piece);
}

// (experts, rows, blocks, 16) bytes, and (experts, rows, blocks) scales.
void PieceMaker::make_mxfp4(const StoredTensor& source, Change change, HfTensor& tensor) const {
  constexpr std::string_view kBlocks = "_blocks";
  const std::string stem = source.name.substr(0, source.name.size() - kBlocks.size());
  const StoredTensor* scales = stored_.find(stem + "_scales");
  const auto [experts, rows, blocks, bytes] = source.dims;
  const bool fits = source.rank == 4 && bytes == 16 && source.type == StoredType::u8 && scales != nullptr &&
                    scales->type == StoredType::u8 && scales->rank == 3 &&
                    std::equal(scales->dims.begin(), scales->dims.begin() + 3, source.dims.begin());
  if (!fits) reject(source, "must be U8 blocks of 16, with U8 scales beside them");
  const int64_t step = change == Change::mxfp4 ? 1 : 2;
  if (rows % step != 0) reject(source, "must have an even number of rows");
  const int64_t row = blocks * bytes;
  tensor.recipe.mxfp4 = true;
  tensor.recipe.pieces.push_back({.source = &source,
                                  .base = change == Change::mxfp4_odd ? row : 0,
                                  .rows = {Axis{}, Axis{experts, rows * row}, Axis{rows / step, step * row}},
                                  .columns = dense(row, 1),
                                  .scale = scales});
  tensor.shape = Shape(experts, rows / step, blocks * 32);
}

void PieceMaker::add_scale(const StoredTensor& source, const ScaleBlock& block, HfTensor& tensor) const {
  if (source.type != StoredType::f8_e4m3 && source.type != StoredType::f8_e5m2) return;
  const StoredTensor* scale = stored_.find(source.name + "_scale_inv");
  if (scale == nullptr) scale = stored_.find(source.name + "_scale");
  if (scale == nullptr) return;
  const bool is_float =
      scale->type == StoredType::f32 || scale->type == StoredType::bf16 || scale->type == StoredType::f16;
  if (source.rank != 2 || scale->rank > 2 || !is_float) reject(*scale, "is no scale of a matrix");
  const int64_t count = scale->elements();
  const bool by_row = scale->dims[0] == source.dims[0] && scale->dims[1] == 1;
  const bool by_block = scale->rank == 2 && scale->dims[0] == ceil_div(source.dims[0], block.rows) &&
                        scale->dims[1] == ceil_div(source.dims[1], block.columns);
  if (count != 1 && !by_row && !by_block) reject(*scale, "does not fit the matrix that it scales");
  for (Piece& piece : tensor.recipe.pieces) piece.scale = scale;
}

}  // namespace inferno::hf
