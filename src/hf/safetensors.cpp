#include "hf/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "hf/json.h"

namespace inferno::hf {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are read as the machine's own numbers");

struct TypeRow {
  std::string_view name;
  int64_t bytes;
};
// In the order of StoredType.
constexpr TypeRow kTypes[] = {{"F64", 8},     {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1},
                              {"F8_E5M2", 1}, {"U8", 1},  {"I8", 1},  {"BOOL", 1}, {"U16", 2},
                              {"I16", 2},     {"U32", 4}, {"I32", 4}, {"U64", 8},  {"I64", 8}};

constexpr size_t kMaxRank = 8;
constexpr size_t kMaxNameBytes = 1024;
constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;

class HeaderReader final : public JsonVisitor {
 public:
  HeaderReader(uint64_t data_begin, uint64_t file_bytes, const std::string& name)
      : data_begin_(data_begin), data_bytes_(file_bytes - data_begin), file_(name) {}

  void begin(JsonPath path) override {
    if (path.size() == 1 && path[0].key != kMetadata) {
      finish_tensor();
      begin_tensor(path[0].key);
    }
  }

  void value(JsonPath path, const JsonScalar& scalar) override {
    if (path.empty()) fail("\"{}\": the header must be a JSON object", file_);
    if (path[0].key == kMetadata) return;
    if (path.size() == 1) reject("must be an object with dtype, shape and data_offsets", path[0].key);
    if (path.size() == 2 && path[1].key == "dtype") return read_type(scalar);
    const uint64_t* number = as_uint(scalar);
    const bool is_item = path.size() == 3 && path[2].is_item && number != nullptr;
    if (is_item && path[1].key == "shape") return add_dimension(path[2].index, *number);
    if (is_item && path[1].key == "data_offsets") return add_offset(path[2].index, *number);
    reject("has a field that is none of dtype, shape and data_offsets, or has a wrong value", tensor_.name);
  }

  [[nodiscard]] std::vector<StoredTensor> finish() {
    finish_tensor();
    std::ranges::sort(tensors_, [](const StoredTensor& a, const StoredTensor& b) {
      return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
    });
    for (size_t i = 1; i < tensors_.size(); ++i) {
      const StoredTensor& before = tensors_[i - 1];
      if (before.offset + before.bytes > tensors_[i].offset) {
        fail("\"{}\" is not a valid safetensors file: tensors \"{}\" and \"{}\" overlap", file_, printable(before.name),
             printable(tensors_[i].name));
      }
    }
    return std::move(tensors_);
  }

 private:
  static constexpr std::string_view kMetadata = "__metadata__";

  [[noreturn]] void reject(std::string_view problem, std::string_view name) const {
    fail("\"{}\" is not a valid safetensors file: tensor \"{}\" {}", file_, printable(name), problem);
  }

  void begin_tensor(const std::string& name) {
    if (tensors_.size() == kMaxStoredTensors)
      fail("\"{}\": the header names more than {} tensors", file_, kMaxStoredTensors);
    if (name.empty() || name.size() > kMaxNameBytes) reject("has no name, or one far too long", name);
    tensor_ = {};
    tensor_.name = name;
    is_open_ = true;
    type_.reset();
    elements_ = 1;
    offsets_ = {};
    offset_count_ = 0;
  }

  void read_type(const JsonScalar& scalar) {
    const std::string_view* text = as_text(scalar);
    if (text == nullptr || type_) reject("must have one dtype, a string", tensor_.name);
    for (size_t i = 0; i < std::size(kTypes); ++i) {
      if (kTypes[i].name == *text) type_ = static_cast<StoredType>(i);
    }
    if (!type_) reject("has an unknown dtype", tensor_.name);
  }

  void add_dimension(size_t index, uint64_t size) {
    if (index != tensor_.rank || index >= kMaxRank)
      reject("has more than one shape, or too many dimensions", tensor_.name);
    const std::optional<uint64_t> product = checked_mul(elements_, size);
    if (!product || *product > uint64_t{INT64_MAX}) reject("has a shape of too many elements", tensor_.name);
    elements_ = *product;
    if (index < tensor_.dims.size()) tensor_.dims[index] = static_cast<int64_t>(size);
    ++tensor_.rank;
  }

  void add_offset(size_t index, uint64_t offset) {
    if (index != offset_count_ || index >= offsets_.size()) reject("must have two data_offsets", tensor_.name);
    offsets_[index] = offset;
    ++offset_count_;
  }

  void finish_tensor() {
    if (!is_open_) return;
    is_open_ = false;
    if (!type_ || offset_count_ != 2) reject("lacks dtype or data_offsets", tensor_.name);
    const auto [begin, end] = offsets_;
    const std::optional<uint64_t> bytes =
        checked_mul(elements_, static_cast<uint64_t>(kTypes[static_cast<size_t>(*type_)].bytes));
    if (begin > end || end > data_bytes_) reject("lies outside the file", tensor_.name);
    if (!bytes || *bytes != end - begin) reject("has data_offsets that do not fit its dtype and shape", tensor_.name);
    tensor_.type = *type_;
    tensor_.offset = data_begin_ + begin;
    tensor_.bytes = *bytes;
    tensors_.push_back(std::move(tensor_));
  }

  uint64_t data_begin_;
  uint64_t data_bytes_;
  const std::string& file_;
  std::vector<StoredTensor> tensors_;
  // The tensor that is being read.
  bool is_open_ = false;
  StoredTensor tensor_;
  std::optional<StoredType> type_;
  uint64_t elements_ = 1;
  std::array<uint64_t, 2> offsets_ = {};
  size_t offset_count_ = 0;
};

// The files that an index names, each once, in order of their names.
class IndexReader final : public JsonVisitor {
 public:
  explicit IndexReader(const std::string& path) : path_(path) {}

  void value(JsonPath path, const JsonScalar& scalar) override {
    if (path.empty() || path[0].key != "weight_map") return;
    const std::string_view* file = as_text(scalar);
    if (path.size() != 2 || file == nullptr) fail("\"{}\": \"weight_map\" must name a file for each tensor", path_);
    if (shards_.contains(*file)) return;
    check(*file);
    if (shards_.size() == kMaxShards) fail("\"{}\" names more than {} files", path_, kMaxShards);
    shards_.emplace(*file);
  }

  [[nodiscard]] const std::set<std::string, std::less<>>& shards() const { return shards_; }

 private:
  // Only a plain name becomes a path: nothing outside the folder, nothing hidden.
  void check(std::string_view file) const {
    constexpr size_t kMaxFileName = 255;
    constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+";
    if (file.empty() || file.size() > kMaxFileName || file.front() == '.' || !file.ends_with(".safetensors") ||
        file.find_first_not_of(kAllowed) != std::string_view::npos) {
      fail("\"{}\": \"{}\" is not the name of a .safetensors file in the same folder", path_, printable(file));
    }
  }

  const std::string& path_;
  std::set<std::string, std::less<>> shards_;
};

}  // namespace

int64_t StoredTensor::elements() const {
  return dims[0] * dims[1] * dims[2] * dims[3];
}

std::string_view stored_type_name(StoredType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

int64_t stored_type_bytes(StoredType type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}

std::vector<StoredTensor> parse_safetensors_header(std::string_view header, uint64_t file_bytes,
                                                   const std::string& name) {
  if (!header.starts_with('{')) fail("\"{}\" is not a valid safetensors file: its header is no JSON object", name);
  HeaderReader reader(sizeof(uint64_t) + header.size(), file_bytes, name);
  scan_json(header, name, reader);
  return reader.finish();
}

Safetensors Safetensors::open_folder(const std::string& folder) {
  const std::string whole = folder + "/model.safetensors";
  const std::string index = folder + "/model.safetensors.index.json";
  Safetensors opened;
  if (file_exists(index)) {
    IndexReader reader(index);
    const std::string text = read_small_file(index, kMaxIndexBytes);
    scan_json(text, index, reader);
    if (reader.shards().empty()) fail("\"{}\": \"weight_map\" names no files", index);
    for (const std::string& shard : reader.shards()) opened.add_file(folder + "/" + shard);
  } else if (file_exists(whole)) {
    opened.add_file(whole);
  } else {
    fail("\"{}\" holds neither model.safetensors nor model.safetensors.index.json; other forms of weights are not read",
         folder);
  }
  opened.sort_names(folder);
  return opened;
}

void Safetensors::add_file(const std::string& path) {
  InputFile file(path);
  uint64_t length = 0;
  if (file.size() < sizeof(length)) fail("\"{}\" is not a safetensors file: it has {} bytes", path, file.size());
  file.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kMaxHeaderBytes || length > file.size() - sizeof(length)) {
    fail("\"{}\" is not a safetensors file, or is cut off: its header would have {} bytes, the file has {}", path,
         length, file.size());
  }
  std::string header(length, '\0');
  file.read_at(sizeof(length), std::as_writable_bytes(std::span(header)));
  std::vector<StoredTensor> found = parse_safetensors_header(header, file.size(), path);
  if (found.size() > kMaxStoredTensors - tensors_.size())
    fail("\"{}\": the files of this model hold more than {} tensors", path, kMaxStoredTensors);
  for (StoredTensor& tensor : found) tensor.file = static_cast<uint32_t>(files_.size());
  if (tensors_.empty()) {
    tensors_ = std::move(found);
  } else {
    std::ranges::move(found, std::back_inserter(tensors_));
  }
  files_.push_back(std::move(file));
}

void Safetensors::sort_names(const std::string& folder) {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  const auto name = [this](uint32_t i) -> const std::string& { return tensors_[i].name; };
  std::ranges::sort(by_name_, {}, name);
  const auto twin = std::ranges::adjacent_find(by_name_, {}, name);
  if (twin != by_name_.end()) fail("\"{}\": tensor \"{}\" appears twice", folder, printable(name(*twin)));
}

const StoredTensor* Safetensors::find(std::string_view name) const {
  const auto at =
      std::ranges::lower_bound(by_name_, name, {}, [this](uint32_t i) -> std::string_view { return tensors_[i].name; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

std::vector<std::string> Safetensors::files() const {
  std::vector<std::string> paths;
  for (const InputFile& file : files_) paths.push_back(file.path());
  return paths;
}

uint64_t Safetensors::file_bytes() const {
  uint64_t total = 0;
  for (const InputFile& file : files_) total += file.size();
  return total;
}

void Safetensors::read(const StoredTensor& tensor, uint64_t begin, std::span<std::byte> out) const {
  INFERNO_CHECK(begin <= tensor.bytes && out.size() <= tensor.bytes - begin);
  files_[tensor.file].read_at(tensor.offset + begin, out);
}

}  // namespace inferno::hf
