#include "model/imatrix.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "gguf/gguf.h"
#include "gguf/writer.h"

namespace inferno {
namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";
// More than any model's widest matrix has columns, times its experts.
constexpr uint64_t kMaxValues = uint64_t{1} << 26;
constexpr uint64_t kMaxName = 4096;

std::vector<float> read_floats(const GgufFile& file, const GgufTensor& tensor) {
  if (tensor.dtype != DType::f32) fail("\"{}\": tensor {} is {}, not F32", file.path(), tensor.name, tensor.type_name);
  if (tensor.bytes / sizeof(float) > kMaxValues) fail("\"{}\": tensor {} is too large", file.path(), tensor.name);
  std::vector<float> values(tensor.bytes / sizeof(float));
  file.read_tensor(tensor, std::as_writable_bytes(std::span(values)));
  return values;
}

void check_entry(const std::string& path, std::string_view name, const Importance& entry) {
  const auto good = [](const std::vector<float>& values) {
    for (const float value : values) {
      if (!std::isfinite(value) || value < 0) return false;
    }
    return !values.empty();
  };
  if (!good(entry.sums) || !good(entry.counts)) {
    fail("\"{}\": the values of {} are not all finite and positive", path, printable(name));
  }
  if (entry.sums.size() % entry.counts.size() != 0) {
    fail("\"{}\": {} has {} values for {} matrices", path, printable(name), entry.sums.size(), entry.counts.size());
  }
}

Imatrix read_gguf(const std::string& path) {
  const GgufFile file = GgufFile::open(path);
  Imatrix imatrix;
  for (const GgufTensor& tensor : file.tensors()) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - kSums.size());
    const GgufTensor* counts = file.find_tensor(name + std::string(kCounts));
    if (counts == nullptr) fail("\"{}\": {} has no counts", path, name);
    Importance entry{read_floats(file, tensor), read_floats(file, *counts)};
    check_entry(path, name, entry);
    imatrix.entries.emplace(name, std::move(entry));
  }
  if (imatrix.entries.empty()) fail("\"{}\" holds no importances: it is no imatrix", path);
  if (const StringList* datasets = file.find_strings("imatrix.datasets")) {
    for (size_t i = 0; i < datasets->size(); ++i) imatrix.datasets.emplace_back((*datasets)[i]);
  }
  imatrix.chunks = static_cast<uint32_t>(file.find_uint("imatrix.chunk_count").value_or(0));
  imatrix.chunk_tokens = static_cast<uint32_t>(file.find_uint("imatrix.chunk_size").value_or(0));
  return imatrix;
}

// The older format: a count of entries, then for each its name, a number of chunks and means times that number.
class LegacyReader {
 public:
  explicit LegacyReader(const std::string& path) : file_(path) {}

  Imatrix read() {
    Imatrix imatrix;
    const uint64_t entries = number(file_.size());
    for (uint64_t i = 0; i < entries; ++i) {
      std::string name(number(kMaxName), '\0');
      take(std::as_writable_bytes(std::span(name)));
      const uint64_t chunks = number(INT32_MAX);
      Importance entry{std::vector<float>(number(std::min(kMaxValues, left() / sizeof(float)))), {}};
      entry.counts = {static_cast<float>(chunks)};
      take(std::as_writable_bytes(std::span(entry.sums)));
      check_entry(file_.path(), name, entry);
      imatrix.entries.insert_or_assign(std::move(name), std::move(entry));
    }
    if (left() >= sizeof(int32_t)) imatrix.chunks = static_cast<uint32_t>(number(INT32_MAX));
    if (left() > sizeof(int32_t)) {
      std::string name(number(kMaxName), '\0');
      take(std::as_writable_bytes(std::span(name)));
      imatrix.datasets.push_back(std::move(name));
    }
    return imatrix;
  }

 private:
  [[nodiscard]] uint64_t left() const { return file_.size() - at_; }

  void take(std::span<std::byte> out) {
    if (out.size() > left())
      fail("\"{}\" is neither a GGUF file nor a whole imatrix of the older format", file_.path());
    file_.read_at(at_, out);
    at_ += out.size();
  }

  // 1 to `most`
  uint64_t number(uint64_t most) {
    int32_t value = 0;
    take(std::as_writable_bytes(std::span(&value, 1)));
    if (value < 1 || static_cast<uint64_t>(value) > most) {
      fail("\"{}\" is neither a GGUF file nor an imatrix of the older format", file_.path());
    }
    return static_cast<uint64_t>(value);
  }

  InputFile file_;
  uint64_t at_ = 0;
};

bool is_gguf(const std::string& path) {
  const InputFile file(path);
  std::array<char, 4> magic = {};
  if (file.size() < magic.size()) return false;
  file.read_at(0, std::as_writable_bytes(std::span(magic)));
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

}  // namespace

Imatrix Imatrix::read(const std::string& path) {
  return is_gguf(path) ? read_gguf(path) : LegacyReader(path).read();
}

void Imatrix::write(const std::string& path) const {
  GgufWriter writer(path);
  writer.set("general.type", MetadataValue("imatrix"));
  writer.set("imatrix.datasets", MetadataValue(MetadataArray{StringList(datasets)}));
  writer.set("imatrix.chunk_count", MetadataValue(chunks));
  writer.set("imatrix.chunk_size", MetadataValue(chunk_tokens));
  for (const auto& [name, entry] : entries) {
    const auto matrices = static_cast<int64_t>(entry.counts.size());
    writer.add_tensor(name + std::string(kSums), DType::f32,
                      Shape(matrices, static_cast<int64_t>(entry.sums.size()) / matrices));
    writer.add_tensor(name + std::string(kCounts), DType::f32, Shape(matrices, 1));
  }
  for (const auto& [name, entry] : entries) {
    writer.write_data(std::as_bytes(std::span(entry.sums)));
    writer.write_data(std::as_bytes(std::span(entry.counts)));
  }
  writer.finish();
}

std::vector<float> Imatrix::means(std::string_view name, const Shape& shape) const {
  const auto found = entries.find(name);
  if (found == entries.end()) return {};
  const Importance& entry = found->second;
  const auto cols = static_cast<size_t>(shape.cols());
  const size_t matrices = shape.rank > 2 ? static_cast<size_t>(shape.dims[0]) : 1;
  // One row of columns for all experts is fine, too.
  if (entry.sums.size() != cols * matrices && entry.sums.size() != cols) {
    fail("the imatrix has {} values for {}, which has {} columns: it was made with another model", entry.sums.size(),
         printable(name), cols);
  }
  std::vector<float> means(entry.sums.size());
  for (size_t i = 0; i < means.size(); ++i) {
    // The older format has one count for all experts.
    const float count = entry.counts[entry.counts.size() * cols == entry.sums.size() ? i / cols : 0];
    // An expert that the text never reached: all its columns alike.
    means[i] = count > 0 ? entry.sums[i] / count : 1.0F;
  }
  return means;
}

}  // namespace inferno
