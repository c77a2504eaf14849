#include "gguf/gguf.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "gguf/byte_reader.h"
#include "gguf/head.h"

namespace inferno {
namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

// "NAME-00002-of-00003.gguf": 2 is `number` and 3 is `count`.
struct SplitName {
  std::string stem;
  int64_t number = 0;
  int64_t count = 0;
};

constexpr std::string_view kSplitPattern = "-00000-of-00000.gguf";

std::optional<SplitName> parse_split_name(std::string_view path) {
  if (path.size() <= kSplitPattern.size()) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kSplitPattern.size());
  for (size_t i = 0; i < tail.size(); ++i) {
    const bool digit = tail[i] >= '0' && tail[i] <= '9';
    if (kSplitPattern[i] == '0' ? !digit : tail[i] != kSplitPattern[i]) return std::nullopt;
  }
  return SplitName{std::string(path.substr(0, path.size() - tail.size())), *parse_int(tail.substr(1, 5)),
                   *parse_int(tail.substr(10, 5))};
}

std::string split_path(const SplitName& name, uint64_t number) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", name.stem, number, name.count);
}

// Position in `by_name` (sorted positions in `items`) of the item with this name.
template <typename Items, typename Name>
const auto* find_by_name(const Items& items, const std::vector<uint32_t>& by_name, std::string_view wanted, Name name) {
  const auto name_at = [&](uint32_t i) -> std::string_view { return name(items[i]); };
  const auto found = std::ranges::lower_bound(by_name, wanted, {}, name_at);
  return found != by_name.end() && name_at(*found) == wanted ? &items[*found] : nullptr;
}

const MetadataValue* find_value(const GgufHead& head, std::string_view key) {
  const MetadataEntry* entry = find_by_name(head.metadata, head.keys_by_name, key,
                                            [](const MetadataEntry& item) -> std::string_view { return item.key; });
  return entry == nullptr ? nullptr : &entry->value;
}

// A number of the split keys: nullopt when missing.
std::optional<uint64_t> find_split_number(const GgufHead& head, std::string_view key, const std::string& path) {
  const MetadataValue* value = find_value(head, key);
  if (value == nullptr) return std::nullopt;
  const std::optional<uint64_t> number = as_uint64(*value);
  if (!number) fail("\"{}\": metadata key \"{}\" must be a whole number, not {}", path, key, value->type_text());
  return number;
}

constexpr std::string_view kSplitCountKey = "split.count";
constexpr std::string_view kSplitNumberKey = "split.no";
constexpr std::string_view kSplitTensorsKey = "split.tensors.count";

}  // namespace

struct GgufFile::Part {
  Source source;
  GgufHead head;
};

GgufFile::Part GgufFile::load_part(Source source) {
  GgufHead head = std::visit(Overloaded{[](const InputFile& file) {
                                          ByteReader reader(file, kMaxHeadBytes);
                                          return parse_head(reader);
                                        },
                                        [](const MemoryFile& file) {
                                          ByteReader reader(file.bytes, file.name, kMaxHeadBytes);
                                          return parse_head(reader);
                                        }},
                             source);
  return {std::move(source), std::move(head)};
}

GgufFile GgufFile::open(const std::string& path) {
  GgufFile file;
  file.path_ = path;
  Part part = load_part(InputFile(path));
  const uint64_t count = find_split_number(part.head, kSplitCountKey, path).value_or(1);
  if (count > 1) {
    file.add_split_parts(std::move(part), count);
  } else {
    file.add_part(std::move(part));
  }
  file.sort_tensor_names();
  return file;
}

GgufFile GgufFile::from_memory(std::span<const std::byte> bytes, std::string name) {
  GgufFile file;
  file.path_ = name;
  Part part = load_part(MemoryFile{std::move(name), bytes});
  if (find_split_number(part.head, kSplitCountKey, file.path_).value_or(1) > 1)
    fail("\"{}\" is one part of a split model, which cannot be used from memory", file.path_);
  file.add_part(std::move(part));
  file.sort_tensor_names();
  return file;
}

void GgufFile::add_part(Part part) {
  if (part.head.tensors.size() > kMaxTensorCount - tensors_.size())
    fail("\"{}\": the parts of this model hold more than {} tensors", path_, kMaxTensorCount);
  for (GgufTensor& tensor : part.head.tensors) tensor.part = sources_.size();
  if (sources_.empty()) {
    version_ = part.head.version;
    metadata_ = std::move(part.head.metadata);
    keys_by_name_ = std::move(part.head.keys_by_name);
    tensors_ = std::move(part.head.tensors);
  } else {
    std::ranges::move(part.head.tensors, std::back_inserter(tensors_));
  }
  sources_.push_back(std::move(part.source));
}

void GgufFile::add_split_parts(Part opened, uint64_t count) {
  const std::optional<uint64_t> opened_number = find_split_number(opened.head, kSplitNumberKey, path_);
  const std::optional<SplitName> name = parse_split_name(path_);
  if (!opened_number || *opened_number >= count)
    fail("\"{}\": metadata key \"{}\" must say which of the model's {} parts this is", path_, kSplitNumberKey, count);
  if (!name || !std::cmp_equal(name->number, *opened_number + 1) || !std::cmp_equal(name->count, count))
    fail("\"{}\" is part {} of {} of a split model and must be named NAME-{:05}-of-{:05}.gguf", path_,
         *opened_number + 1, count, *opened_number + 1, count);
  std::optional<Part> pending = std::move(opened);
  for (uint64_t number = 0; number < count; ++number) {
    if (number == *opened_number) {
      add_part(*std::exchange(pending, std::nullopt));
      continue;
    }
    const std::string path = split_path(*name, number + 1);
    Part part = [&] {
      try {
        return load_part(InputFile(path));
      } catch (const Error& error) {
        fail("part {} of {} of the model cannot be used: {}", number + 1, count, error.what());
      }
    }();
    if (find_split_number(part.head, kSplitCountKey, path) != count ||
        find_split_number(part.head, kSplitNumberKey, path) != number)
      fail("\"{}\" does not say of itself that it is part {} of {}: it belongs to another model", path, number + 1,
           count);
    add_part(std::move(part));
  }
  const MetadataValue* total = find(kSplitTensorsKey);
  if (total != nullptr && as_uint64(*total) != tensors_.size())
    fail("\"{}\": metadata key \"{}\" promises {} tensors but the {} parts hold {}", path_, kSplitTensorsKey,
         value_to_string(*total), count, tensors_.size());
}

void GgufFile::sort_tensor_names() {
  tensors_by_name_.resize(tensors_.size());
  std::iota(tensors_by_name_.begin(), tensors_by_name_.end(), 0U);
  const auto name = [this](uint32_t i) -> const std::string& { return tensors_[i].name; };
  std::ranges::sort(tensors_by_name_, {}, name);
  const auto twin = std::ranges::adjacent_find(tensors_by_name_, {}, name);
  if (twin != tensors_by_name_.end())
    fail("\"{}\" is not a valid GGUF file: tensor \"{}\" appears twice", path_, printable(name(*twin)));
}

const std::string& GgufFile::part_path(size_t part) const {
  return std::visit(Overloaded{[](const InputFile& file) -> const std::string& { return file.path(); },
                               [](const MemoryFile& file) -> const std::string& { return file.name; }},
                    sources_[part]);
}

std::vector<std::string> GgufFile::files() const {
  std::vector<std::string> paths;
  for (size_t part = 0; part < part_count(); ++part) paths.push_back(part_path(part));
  return paths;
}

uint64_t GgufFile::file_bytes() const {
  uint64_t total = 0;
  for (const Source& source : sources_) {
    total += std::visit(Overloaded{[](const InputFile& file) { return file.size(); },
                                   [](const MemoryFile& file) { return uint64_t{file.bytes.size()}; }},
                        source);
  }
  return total;
}

const MetadataValue* GgufFile::find(std::string_view key) const {
  const MetadataEntry* entry = find_by_name(metadata_, keys_by_name_, key,
                                            [](const MetadataEntry& item) -> std::string_view { return item.key; });
  return entry == nullptr ? nullptr : &entry->value;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  return find_by_name(tensors_, tensors_by_name_, name,
                      [](const GgufTensor& item) -> std::string_view { return item.name; });
}

void GgufFile::read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin) const {
  INFERNO_CHECK(begin <= tensor.bytes && out.size() <= tensor.bytes - begin);
  const auto& placed = static_cast<const GgufTensor&>(tensor);  // this file gives out no others
  const uint64_t offset = placed.offset + begin;
  std::visit(Overloaded{[&](const InputFile& file) { file.read_at(offset, out); },
                        [&](const MemoryFile& file) {
                          std::ranges::copy(file.bytes.subspan(offset, out.size()), out.begin());
                        }},
             sources_[placed.part]);
}

std::span<const std::byte> GgufFile::view_tensor(const GgufTensor& tensor) const {
  const auto* file = std::get_if<MemoryFile>(&sources_[tensor.part]);
  return file == nullptr ? std::span<const std::byte>() : file->bytes.subspan(tensor.offset, tensor.bytes);
}

}  // namespace inferno
