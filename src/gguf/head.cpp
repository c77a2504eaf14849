#include "gguf/head.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>

#include "base/checked.h"
#include "base/text.h"

namespace inferno {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxElements = std::numeric_limits<int64_t>::max();
// The least bytes an item takes in the file, for checking a count before allocating.
constexpr uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;        // key length, key, type, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name length, name, rank, one dimension, type, offset
constexpr uint64_t kMinNestedArrayBytes = 4 + 8;             // type, count
constexpr uint64_t kMinStringBytes = 8;                      // length

class HeadParser {
 public:
  explicit HeadParser(ByteReader& reader) : reader_(reader) {}

  GgufHead parse() {
    uint64_t tensor_count = 0;
    uint64_t metadata_count = 0;
    read_preamble(tensor_count, metadata_count);
    head_.metadata.reserve(metadata_count);
    for (uint64_t i = 0; i < metadata_count; ++i) {
      reader_.describe(fmt::format("metadata entry {} of {}", i + 1, metadata_count));
      read_metadata();
    }
    sort_keys();
    const uint64_t alignment = find_alignment();
    reader_.describe("");
    reader_.require(tensor_count, kMinTensorBytes, "tensors");
    head_.tensors.reserve(tensor_count);
    for (uint64_t i = 0; i < tensor_count; ++i) {
      reader_.describe(fmt::format("tensor {} of {}", i + 1, tensor_count));
      read_tensor();
    }
    place_tensors(alignment);
    return std::move(head_);
  }

 private:
  void read_preamble(uint64_t& tensor_count, uint64_t& metadata_count) {
    const auto magic = reader_.read<uint32_t>();
    if (magic != kMagic) reader_.reject("it does not begin with \"GGUF\"");
    head_.version = reader_.read<uint32_t>();
    const uint32_t swapped = __builtin_bswap32(head_.version);
    if (swapped == 2 || swapped == 3) reader_.reject("it is big-endian, which is not supported");
    if (head_.version != 2 && head_.version != 3)
      reader_.reject("its format version is {}, supported are 2 and 3", head_.version);
    tensor_count = reader_.read<uint64_t>();
    metadata_count = reader_.read<uint64_t>();
    if (tensor_count > kMaxTensorCount) reader_.reject("{} tensors are more than {}", tensor_count, kMaxTensorCount);
    if (metadata_count > kMaxMetadataCount)
      reader_.reject("{} metadata entries are more than {}", metadata_count, kMaxMetadataCount);
    reader_.require(metadata_count, kMinMetadataBytes, "metadata entries");
    reader_.require(tensor_count, kMinTensorBytes, "tensors");
  }

  std::string read_string(std::string_view what, uint64_t max_bytes) {
    const auto length = reader_.read<uint64_t>();
    if (length > max_bytes) reader_.reject("{} of {} bytes is longer than {}", what, length, max_bytes);
    reader_.require(length, 1, "bytes of text");
    std::string text(length, '\0');
    reader_.read_bytes(std::as_writable_bytes(std::span(text)));
    return text;
  }

  // Keys and tensor names are shown, compared and looked up: they must be text.
  std::string read_name(std::string_view what, uint64_t max_bytes) {
    std::string name = read_string(what, max_bytes);
    if (name.empty()) reader_.reject("{} is empty", what);
    if (!is_valid_utf8(name)) reader_.reject("{} \"{}\" is not valid UTF-8", what, printable(name));
    return name;
  }

  MetadataType read_type(std::string_view what) {
    const auto type = reader_.read<uint32_t>();
    if (type >= kMetadataTypeCount) reader_.reject("{} {} does not exist", what, type);
    return static_cast<MetadataType>(type);
  }

  bool read_bool() {
    const auto byte = reader_.read<uint8_t>();
    if (byte > 1) reader_.reject("a bool is {} instead of 0 or 1", byte);
    return byte == 1;
  }

  void read_metadata() {
    std::string key = read_name("key", kMaxKeyBytes);
    reader_.describe(fmt::format("metadata key \"{}\"", printable(key)));
    const MetadataType type = read_type("value type");
    head_.metadata.push_back({std::move(key), read_value(type)});
  }

  MetadataValue read_value(MetadataType type) {
    switch (type) {
      case MetadataType::u8:
        return MetadataValue(reader_.read<uint8_t>());
      case MetadataType::i8:
        return MetadataValue(reader_.read<int8_t>());
      case MetadataType::u16:
        return MetadataValue(reader_.read<uint16_t>());
      case MetadataType::i16:
        return MetadataValue(reader_.read<int16_t>());
      case MetadataType::u32:
        return MetadataValue(reader_.read<uint32_t>());
      case MetadataType::i32:
        return MetadataValue(reader_.read<int32_t>());
      case MetadataType::f32:
        return MetadataValue(reader_.read<float>());
      case MetadataType::boolean:
        return MetadataValue(read_bool());
      case MetadataType::string:
        return MetadataValue(read_string("string", kMaxStringBytes));
      case MetadataType::array:
        return MetadataValue(read_array(1));
      case MetadataType::u64:
        return MetadataValue(reader_.read<uint64_t>());
      case MetadataType::i64:
        return MetadataValue(reader_.read<int64_t>());
      case MetadataType::f64:
        return MetadataValue(reader_.read<double>());
    }
    __builtin_unreachable();
  }

  MetadataArray read_array(int depth) {
    if (depth > kMaxArrayDepth) reader_.reject("arrays are nested deeper than {}", kMaxArrayDepth);
    const MetadataType type = read_type("array element type");
    const auto count = reader_.read<uint64_t>();
    switch (type) {
      case MetadataType::u8:
        return read_numbers<uint8_t>(count);
      case MetadataType::i8:
        return read_numbers<int8_t>(count);
      case MetadataType::u16:
        return read_numbers<uint16_t>(count);
      case MetadataType::i16:
        return read_numbers<int16_t>(count);
      case MetadataType::u32:
        return read_numbers<uint32_t>(count);
      case MetadataType::i32:
        return read_numbers<int32_t>(count);
      case MetadataType::f32:
        return read_numbers<float>(count);
      case MetadataType::boolean:
        return read_bools(count);
      case MetadataType::string:
        return read_strings(count);
      case MetadataType::array:
        return read_arrays(count, depth + 1);
      case MetadataType::u64:
        return read_numbers<uint64_t>(count);
      case MetadataType::i64:
        return read_numbers<int64_t>(count);
      case MetadataType::f64:
        return read_numbers<double>(count);
    }
    __builtin_unreachable();
  }

  template <typename T>
  MetadataArray read_numbers(uint64_t count) {
    reader_.require(count, sizeof(T), "array elements");
    std::vector<T> numbers(count);
    reader_.read_bytes(std::as_writable_bytes(std::span(numbers)));
    return MetadataArray{std::move(numbers)};
  }

  MetadataArray read_bools(uint64_t count) {
    reader_.require(count, 1, "array elements");
    std::vector<bool> bools(count);
    for (uint64_t i = 0; i < count; ++i) bools[i] = read_bool();
    return MetadataArray{std::move(bools)};
  }

  // Walks the strings twice, first for the length of the text, so that it is allocated once and never too large.
  MetadataArray read_strings(uint64_t count) {
    reader_.require(count, kMinStringBytes, "strings");
    const uint64_t begin = reader_.position();
    uint64_t total = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const auto length = reader_.read<uint64_t>();
      if (length > kMaxStringBytes) reader_.reject("string of {} bytes is longer than {}", length, kMaxStringBytes);
      reader_.skip(length);
      total += length;
    }
    reader_.rewind(begin);
    StringList strings;
    strings.reserve(count, total);
    for (uint64_t i = 0; i < count; ++i) {
      const auto length = reader_.read<uint64_t>();
      // The file could have been changed since the first walk.
      if (length > total) reader_.reject("the file changes while it is read");
      total -= length;
      reader_.read_bytes(std::as_writable_bytes(std::span(strings.append(length), length)));
    }
    return MetadataArray{std::move(strings)};
  }

  MetadataArray read_arrays(uint64_t count, int depth) {
    reader_.require(count, kMinNestedArrayBytes, "nested arrays");
    if (count > kMaxNestedArrays - nested_arrays_)
      reader_.reject("there are more than {} nested arrays", kMaxNestedArrays);
    nested_arrays_ += count;
    std::vector<MetadataArray> arrays;
    arrays.reserve(count);
    for (uint64_t i = 0; i < count; ++i) arrays.push_back(read_array(depth));
    return MetadataArray{std::move(arrays)};
  }

  void sort_keys() {
    head_.keys_by_name.resize(head_.metadata.size());
    std::iota(head_.keys_by_name.begin(), head_.keys_by_name.end(), 0U);
    const auto key = [this](uint32_t i) -> const std::string& { return head_.metadata[i].key; };
    std::ranges::sort(head_.keys_by_name, {}, key);
    const auto twin = std::ranges::adjacent_find(head_.keys_by_name, {}, key);
    if (twin == head_.keys_by_name.end()) return;
    reader_.describe("");
    reader_.reject("metadata key \"{}\" appears twice", printable(key(*twin)));
  }

  uint64_t find_alignment() {
    const auto found = std::ranges::find(head_.metadata, kAlignmentKey, &MetadataEntry::key);
    if (found == head_.metadata.end()) return kDefaultAlignment;
    reader_.describe(fmt::format("metadata key \"{}\"", kAlignmentKey));
    const auto* alignment = found->value.as<uint32_t>();
    if (alignment == nullptr) reader_.reject("it is of type {} instead of u32", found->value.type_text());
    if (!is_valid_alignment(*alignment))
      reader_.reject("{} is neither a power of two nor a multiple of 8 up to {}", *alignment, kMaxAlignment);
    return *alignment;
  }

  void read_tensor() {
    GgufTensor tensor;
    tensor.name = read_name("name", kMaxTensorNameBytes);
    reader_.describe(fmt::format("tensor \"{}\"", printable(tensor.name)));
    const auto rank = reader_.read<uint32_t>();
    if (rank < 1 || rank > kMaxDims) reader_.reject("it has {} dimensions instead of 1 to {}", rank, kMaxDims);
    tensor.shape.rank = static_cast<int>(rank);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < rank; ++i) {
      const auto dim = reader_.read<uint64_t>();
      const std::optional<uint64_t> product = checked_mul(elements, dim);
      if (dim == 0) reader_.reject("dimension {} is 0", i);
      if (!product || *product > kMaxElements) reader_.reject("the product of its dimensions does not fit in 63 bits");
      elements = *product;
      tensor.shape.dims[rank - 1 - i] = static_cast<int64_t>(dim);  // the file lists the innermost dimension first
    }
    const auto type_id = reader_.read<uint32_t>();
    tensor.type = find_ggml_type(type_id);
    if (tensor.type == nullptr) reader_.reject("tensor type {} does not exist", type_id);
    tensor.type_name = tensor.type->name;
    tensor.dtype = dtype_from_gguf(type_id);
    if (tensor.shape.cols() % tensor.type->block_size != 0)
      reader_.reject("rows of {} elements are not a multiple of {}, the block of {}", tensor.shape.cols(),
                     tensor.type->block_size, tensor.type->name);
    const auto bytes = checked_mul(elements / tensor.type->block_size, tensor.type->block_bytes);
    if (!bytes || *bytes > reader_.file_size())
      reader_.reject("shape {} of {} is larger than the file", to_string(tensor.shape), tensor.type->name);
    tensor.bytes = *bytes;
    tensor.offset = reader_.read<uint64_t>();
    head_.tensors.push_back(std::move(tensor));
  }

  // Turns offsets into positions in the file, and checks that the tensors fill the data section one after the other
  // (in whatever order), each at the first aligned offset after the one before it.
  void place_tensors(uint64_t alignment) {
    std::vector<uint32_t> order(head_.tensors.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, {}, [this](uint32_t i) { return head_.tensors[i].offset; });
    // Both stay far from wrapping: every tensor was found to be smaller than the file and ends inside it.
    const uint64_t data_begin = *checked_round_up(reader_.position(), alignment);
    uint64_t expected = data_begin;
    for (const uint32_t i : order) {
      GgufTensor& tensor = head_.tensors[i];
      reader_.describe(fmt::format("tensor \"{}\"", printable(tensor.name)));
      const std::optional<uint64_t> begin = checked_add(data_begin, tensor.offset);
      const std::optional<uint64_t> end = begin ? checked_add(*begin, tensor.bytes) : std::nullopt;
      if (!end || *end > reader_.file_size())
        reader_.reject("its data of {} bytes at offset {} ends after the end of the file", tensor.bytes, tensor.offset);
      if (tensor.offset % alignment != 0)
        reader_.reject("its data offset {} is not a multiple of the alignment {}", tensor.offset, alignment);
      if (*begin < expected) reader_.reject("its data overlaps that of another tensor");
      if (*begin > expected) reader_.reject("there is a gap of {} bytes before its data", *begin - expected);
      tensor.offset = *begin;
      expected = *checked_round_up(*end, alignment);
    }
  }

  ByteReader& reader_;
  GgufHead head_;
  uint64_t nested_arrays_ = 0;
};

}  // namespace

GgufHead parse_head(ByteReader& reader) {
  return HeadParser(reader).parse();
}

}  // namespace inferno
