#include "gguf/writer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "gguf/head.h"

namespace inferno {
namespace {

constexpr uint64_t kMaxBytes = std::numeric_limits<int64_t>::max();

template <typename T>
void append_number(std::string& out, T number) {
  static_assert(std::is_arithmetic_v<T>);
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void append_string(std::string& out, std::string_view text) {
  append_number(out, uint64_t{text.size()});
  out.append(text);
}

void append_array(std::string& out, const MetadataArray& array, int depth) {
  if (depth > kMaxArrayDepth) fail("a metadata array is nested deeper than {}", kMaxArrayDepth);
  append_number(out, static_cast<uint32_t>(array.element_type()));
  append_number(out, uint64_t{array.size()});
  std::visit(
      [&]<typename Items>(const Items& items) {
        if constexpr (std::is_same_v<Items, StringList>) {
          for (size_t i = 0; i < items.size(); ++i) append_string(out, items[i]);
        } else if constexpr (std::is_same_v<Items, std::vector<MetadataArray>>) {
          for (const MetadataArray& item : items) append_array(out, item, depth + 1);
        } else if constexpr (std::is_same_v<Items, std::vector<bool>>) {
          for (const bool item : items) out.push_back(item ? 1 : 0);
        } else {
          const auto bytes = std::as_bytes(std::span(items));
          out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        }
      },
      array.items);
}

void append_value(std::string& out, const MetadataValue& value) {
  append_number(out, static_cast<uint32_t>(value.type()));
  std::visit(
      [&]<typename T>(const T& item) {
        if constexpr (std::is_same_v<T, std::string>) {
          append_string(out, item);
        } else if constexpr (std::is_same_v<T, MetadataArray>) {
          append_array(out, item, 1);
        } else {
          append_number(out, item);
        }
      },
      value.data());
}

void check_name(const std::string& path, std::string_view what, std::string_view name, uint64_t max_bytes) {
  if (name.empty() || name.size() > max_bytes || !is_valid_utf8(name))
    fail("cannot write \"{}\": {} \"{}\" must be valid UTF-8 of 1 to {} bytes", path, what, printable(name), max_bytes);
}

}  // namespace

GgufWriter::GgufWriter(const std::string& path) : path_(path), file_(path), alignment_(kDefaultAlignment) {}

void GgufWriter::set(const std::string& key, const MetadataValue& value) {
  INFERNO_CHECK(!head_written_);
  check_name(path_, "metadata key", key, kMaxKeyBytes);
  if (keys_.size() == kMaxMetadataCount) fail("cannot write \"{}\": more than {} metadata keys", path_, keys_.size());
  if (!keys_.insert(key).second) fail("cannot write \"{}\": metadata key \"{}\" is set twice", path_, printable(key));
  if (key == kAlignmentKey) {
    const auto* alignment = value.as<uint32_t>();
    if (alignment == nullptr || !is_valid_alignment(*alignment))
      fail("cannot write \"{}\": {} is no valid {}", path_, value_to_string(value), kAlignmentKey);
    alignment_ = *alignment;
  }
  append_string(metadata_, key);
  append_value(metadata_, value);
}

void GgufWriter::add_tensor(const std::string& name, DType dtype, const Shape& shape) {
  add_tensor(name, *find_ggml_type(static_cast<uint32_t>(dtype_info(dtype).gguf_id)), shape);
}

void GgufWriter::add_tensor(const std::string& name, const GgmlType& type, const Shape& shape) {
  INFERNO_CHECK(!head_written_ && shape.rank >= 1);
  check_name(path_, "tensor name", name, kMaxTensorNameBytes);
  if (tensors_.size() == kMaxTensorCount) fail("cannot write \"{}\": more than {} tensors", path_, tensors_.size());
  if (!names_.insert(name).second) fail("cannot write \"{}\": tensor \"{}\" is added twice", path_, printable(name));
  std::optional<uint64_t> elements = 1;
  for (int axis = 0; axis < shape.rank; ++axis) {
    const bool positive = shape[axis] > 0;
    elements = elements && positive ? checked_mul(*elements, static_cast<uint64_t>(shape[axis])) : std::nullopt;
  }
  if (!elements || *elements > kMaxBytes / type.block_bytes || shape.cols() % type.block_size != 0)
    fail("cannot write \"{}\": tensor \"{}\" of shape {} cannot be stored as {}", path_, printable(name),
         to_string(shape), type.name);
  tensors_.push_back({name, &type, shape, *elements / type.block_size * type.block_bytes});
}

void GgufWriter::write_head() {
  std::string head = "GGUF";
  append_number(head, uint32_t{3});
  append_number(head, uint64_t{tensors_.size()});
  append_number(head, uint64_t{keys_.size()});
  file_.write(head);
  file_.write(metadata_);
  std::string infos;
  uint64_t offset = 0;
  for (const Entry& tensor : tensors_) {
    append_string(infos, tensor.name);
    append_number(infos, static_cast<uint32_t>(tensor.shape.rank));
    for (int axis = tensor.shape.rank - 1; axis >= 0; --axis) append_number(infos, uint64_t(tensor.shape[axis]));
    append_number(infos, tensor.type->id);
    append_number(infos, offset);
    const std::optional<uint64_t> end = checked_add(offset, tensor.bytes);
    const std::optional<uint64_t> next = end ? checked_round_up(*end, alignment_) : std::nullopt;
    if (!next) fail("cannot write \"{}\": its tensors need more than 2^64 bytes", path_);
    offset = *next;
  }
  file_.write(infos);
  write_padding();
  head_written_ = true;
}

void GgufWriter::write_padding() {
  static constexpr std::array<std::byte, 4096> kZeros = {};
  uint64_t missing = *checked_round_up(file_.position(), alignment_) - file_.position();
  while (missing > 0) {
    const uint64_t count = std::min<uint64_t>(missing, kZeros.size());
    file_.write(std::span(kZeros).first(count));
    missing -= count;
  }
}

void GgufWriter::write_data(std::span<const std::byte> bytes) {
  if (!head_written_) write_head();
  while (!bytes.empty()) {
    INFERNO_CHECK(current_ < tensors_.size());
    const uint64_t count = std::min<uint64_t>(bytes.size(), tensors_[current_].bytes - current_done_);
    file_.write(bytes.first(count));
    bytes = bytes.subspan(count);
    current_done_ += count;
    if (current_done_ == tensors_[current_].bytes) {
      write_padding();
      ++current_;
      current_done_ = 0;
    }
  }
}

void GgufWriter::skip_data() {
  if (!head_written_) write_head();
  for (; current_ < tensors_.size(); ++current_) {
    file_.skip(tensors_[current_].bytes);
    write_padding();
  }
}

uint64_t GgufWriter::finish() {
  if (!head_written_) write_head();
  INFERNO_CHECK(current_ == tensors_.size());
  file_.commit();
  return file_.position();
}

}  // namespace inferno
