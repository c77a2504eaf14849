#include "hf/recipe.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "tensor/half.h"

namespace inferno::hf {
namespace {

// Stored bytes are read in stretches of about this many.
constexpr int64_t kWindowBytes = int64_t{4} << 20;

int64_t offset_of(const Axes& axes, int64_t index) {
  int64_t offset = 0;
  for (size_t i = axes.size(); i-- > 0;) {
    offset += index % axes[i].count * axes[i].stride;
    index /= axes[i].count;
  }
  return offset;
}

// The distance between the first and the last element.
int64_t extent_of(const Axes& axes) {
  int64_t extent = 0;
  for (const Axis& axis : axes) extent += (axis.count - 1) * axis.stride;
  return extent;
}

// The innermost axis covers all, element after element.
bool is_contiguous(const Axes& axes, int64_t stride) {
  return axes[0].count == 1 && axes[1].count == 1 && axes[2].stride == stride;
}

float e4m3_to_float(uint8_t bits) {
  const int exponent = (bits >> 3) & 15;
  const int mantissa = bits & 7;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((bits & 0x7f) == 0x7f) value = std::bit_cast<float>(0x7fc00000U);
  return (bits & 0x80) != 0 ? -value : value;
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

float to_float_at(StoredType type, const std::byte* at) {
  switch (type) {
    case StoredType::f32:
      return load<float>(at);
    case StoredType::f16:
      return to_float(load<f16>(at));
    case StoredType::bf16:
      return to_float(load<bf16>(at));
    case StoredType::f8_e4m3:
      return e4m3_to_float(load<uint8_t>(at));
    case StoredType::f8_e5m2:
      return to_float(static_cast<f16>(load<uint8_t>(at) << 8));
    case StoredType::f64:
      return static_cast<float>(load<double>(at));
    default:
      fail("values of type {} are not numbers of a model", stored_type_name(type));
  }
}

void store_float(DType dtype, float value, std::byte* at) {
  if (dtype == DType::f32) {
    std::memcpy(at, &value, sizeof(value));
  } else if (dtype == DType::bf16) {
    const bf16 small = to_bf16(value);
    std::memcpy(at, &small, sizeof(small));
  } else {
    const f16 small = to_f16(value);
    std::memcpy(at, &small, sizeof(small));
  }
}

bool is_same_type(StoredType stored, DType dtype) {
  return (stored == StoredType::f32 && dtype == DType::f32) || (stored == StoredType::f16 && dtype == DType::f16) ||
         (stored == StoredType::bf16 && dtype == DType::bf16);
}

// Elements of one stored tensor, read in stretches.
class Window {
 public:
  explicit Window(const Safetensors& files) : files_(files) {}

  // Elements [first, first + count); more behind them are read at once.
  const std::byte* get(const StoredTensor& tensor, int64_t first, int64_t count) {
    const int64_t size = stored_type_bytes(tensor.type);
    if (&tensor != tensor_ || first < first_ || first + count > first_ + count_) {
      const int64_t all = tensor.elements();
      tensor_ = &tensor;
      first_ = first;
      count_ = std::min(all - first, std::max(count, kWindowBytes / size));
      bytes_.resize(static_cast<size_t>(count_ * size));
      files_.read(tensor, static_cast<uint64_t>(first * size), bytes_);
    }
    return bytes_.data() + (first - first_) * size;
  }

 private:
  const Safetensors& files_;
  const StoredTensor* tensor_ = nullptr;
  int64_t first_ = 0;
  int64_t count_ = 0;
  std::vector<std::byte> bytes_;
};

// Scales of an FP8 tensor.
class Scales {
 public:
  Scales() = default;
  Scales(const Safetensors& files, const StoredTensor& weight, const StoredTensor& scale, const ScaleBlock& block)
      : values_(read_floats(files, scale)), columns_(weight.dims[1]) {
    const int64_t rows = weight.dims[0];
    if (values_.size() == 1) {
      block_ = {rows, columns_};
      stride_ = 0;
    } else if (scale.dims[0] == rows && scale.dims[1] == 1) {
      block_ = {1, columns_};
      stride_ = 1;
    } else {
      block_ = block;
      stride_ = (columns_ + block.columns - 1) / block.columns;
    }
  }
  [[nodiscard]] float at(int64_t element) const {
    if (values_.empty()) return 1;
    const int64_t row = element / columns_;
    const int64_t column = element % columns_;
    return values_[static_cast<size_t>(row / block_.rows * stride_ + column / block_.columns)];
  }

 private:
  std::vector<float> values_;
  int64_t columns_ = 1;
  ScaleBlock block_;
  int64_t stride_ = 0;
};

// Rows of one tensor, made one after another.
class RowMaker {
 public:
  RowMaker(const Safetensors& files, const HfTensor& tensor, const ScaleBlock& block)
      : files_(files), tensor_(tensor), block_(block), window_(files), scale_window_(files) {}

  void make(int64_t row, std::span<std::byte> out) {
    const std::vector<Piece>& pieces = tensor_.recipe.pieces;
    const int64_t each = count_of(pieces.front().rows);  // pieces before the last have as many rows
    const auto index = static_cast<size_t>(std::min<int64_t>(row / each, static_cast<int64_t>(pieces.size()) - 1));
    const Piece& piece = pieces[index];
    const int64_t first = piece.base + offset_of(piece.rows, row - static_cast<int64_t>(index) * each);
    if (tensor_.recipe.mxfp4) {
      make_mxfp4(piece, first, out);
    } else {
      make_plain(piece, first, out);
    }
  }

 private:
  void make_plain(const Piece& piece, int64_t first, std::span<std::byte> out) {
    const StoredTensor& source = *piece.source;
    const int64_t size = stored_type_bytes(source.type);
    const int64_t columns = count_of(piece.columns);
    const int64_t extent = extent_of(piece.columns) + 1;
    const bool is_dense = is_contiguous(piece.columns, 1);
    // A row that is spread over the matrix comes with the others of it.
    const std::byte* from =
        is_dense ? window_.get(source, first, extent)
                 : window_.get(source, piece.base, extent_of(piece.rows) + extent) + (first - piece.base) * size;
    const bool as_is = tensor_.recipe.values == Values::as_stored && is_same_type(source.type, *tensor_.dtype);
    if (as_is && is_dense) {
      std::memcpy(out.data(), from, out.size());
      return;
    }
    if (piece.scale != nullptr && scaled_ != &piece) {
      scales_ = Scales(files_, source, *piece.scale, block_);
      scaled_ = &piece;
    }
    const int64_t out_size = row_bytes(*tensor_.dtype, 1);
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t at = offset_of(piece.columns, column);
      std::byte* to = out.data() + column * out_size;
      if (as_is) {
        std::memcpy(to, from + at * size, static_cast<size_t>(size));
        continue;
      }
      float value = to_float_at(source.type, from + at * size);
      if (piece.scale != nullptr) value *= scales_.at(first + at);
      store_float(*tensor_.dtype, changed(value), to);
    }
  }

  [[nodiscard]] float changed(float value) const {
    switch (tensor_.recipe.values) {
      case Values::plus_one:
        return value + 1;
      case Values::minus_exp:
        return -std::exp(value);
      default:
        return value;
    }
  }

  // A stored byte has values 2i and 2i + 1 of its 32; a block has values i and i + 16 in a byte, behind its exponent.
  void make_mxfp4(const Piece& piece, int64_t first, std::span<std::byte> out) {
    constexpr int64_t kHalf = 16;
    const int64_t blocks = count_of(piece.columns) / kHalf;
    const std::byte* bytes = window_.get(*piece.source, first, blocks * kHalf);
    const std::byte* exponents = scale_window_.get(*piece.scale, first / kHalf, blocks);
    for (int64_t b = 0; b < blocks; ++b) {
      const std::byte* from = bytes + b * kHalf;
      std::byte* to = out.data() + b * (kHalf + 1);
      to[0] = exponents[b];
      const auto value = [&](int64_t i) { return i % 2 == 0 ? from[i / 2] & std::byte{15} : from[i / 2] >> 4; };
      for (int64_t i = 0; i < kHalf; ++i) to[1 + i] = value(i) | (value(i + kHalf) << 4);
    }
  }

  const Safetensors& files_;
  const HfTensor& tensor_;
  const ScaleBlock& block_;
  Window window_;
  Window scale_window_;
  const Piece* scaled_ = nullptr;
  Scales scales_;
};

// The tensor is the bytes of its stored tensors, one after another.
bool is_concatenation(const HfTensor& tensor) {
  const Recipe& recipe = tensor.recipe;
  if (recipe.mxfp4 || recipe.values != Values::as_stored || recipe.pieces.empty()) return false;
  return std::ranges::all_of(recipe.pieces, [&](const Piece& piece) {
    return piece.scale == nullptr && is_same_type(piece.source->type, *tensor.dtype) &&
           is_contiguous(piece.columns, 1) && is_contiguous(piece.rows, count_of(piece.columns));
  });
}

void read_concatenation(const Safetensors& files, const HfTensor& tensor, uint64_t begin, std::span<std::byte> out) {
  for (const Piece& piece : tensor.recipe.pieces) {
    const auto size = static_cast<uint64_t>(stored_type_bytes(piece.source->type));
    const uint64_t bytes = static_cast<uint64_t>(count_of(piece.rows) * count_of(piece.columns)) * size;
    if (out.empty()) return;
    if (begin >= bytes) {
      begin -= bytes;
      continue;
    }
    const auto part = out.first(std::min<uint64_t>(out.size(), bytes - begin));
    files.read(*piece.source, static_cast<uint64_t>(piece.base) * size + begin, part);
    out = out.subspan(part.size());
    begin = 0;
  }
}

}  // namespace

int64_t count_of(const Axes& axes) {
  return axes[0].count * axes[1].count * axes[2].count;
}

void read_recipe(const Safetensors& files, const HfTensor& tensor, const ScaleBlock& block, uint64_t begin,
                 std::span<std::byte> out) {
  if (!tensor.recipe.constant.empty()) {
    const auto bytes = std::as_bytes(std::span(tensor.recipe.constant));
    std::ranges::copy(bytes.subspan(begin, out.size()), out.begin());
    return;
  }
  if (is_concatenation(tensor)) return read_concatenation(files, tensor, begin, out);
  const auto row_size = static_cast<uint64_t>(row_bytes(*tensor.dtype, tensor.shape.cols()));
  RowMaker maker(files, tensor, block);
  std::vector<std::byte> partial;
  while (!out.empty()) {
    const auto row = static_cast<int64_t>(begin / row_size);
    const uint64_t skipped = begin % row_size;
    const uint64_t count = std::min<uint64_t>(row_size - skipped, out.size());
    if (count == row_size) {
      maker.make(row, out.first(count));
    } else {
      partial.resize(row_size);
      maker.make(row, partial);
      std::ranges::copy(std::span(partial).subspan(skipped, count), out.begin());
    }
    out = out.subspan(count);
    begin += count;
  }
}

std::vector<float> read_floats(const Safetensors& files, const StoredTensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  files.read(tensor, 0, bytes);
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  const int64_t size = stored_type_bytes(tensor.type);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = to_float_at(tensor.type, bytes.data() + static_cast<int64_t>(i) * size);
  }
  return values;
}

}  // namespace inferno::hf
