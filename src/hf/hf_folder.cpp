#include "hf/hf_folder.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "hf/config.h"
#include "hf/families.h"
#include "hf/metadata_list.h"
#include "hf/recipe.h"
#include "hf/safetensors.h"
#include "hf/tensor_table.h"
#include "hf/tokenizer_metadata.h"

namespace inferno {

struct HfFolder::Contents {
  std::string path;
  hf::Safetensors stored;
  hf::ScaleBlock block;
  std::vector<MetadataEntry> metadata;
  std::vector<uint32_t> keys_by_name;  // positions, as the next
  std::vector<hf::HfTensor> tensors;
  std::vector<uint32_t> tensors_by_name;
};

namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{4} << 20;

template <typename Items, typename Name>
std::vector<uint32_t> sorted_by(const Items& items, const Name& name) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](uint32_t i) -> const std::string& { return items[i].*name; });
  return order;
}

template <typename Items, typename Name>
auto find_by(const Items& items, const std::vector<uint32_t>& order, std::string_view wanted, const Name& name)
    -> decltype(&items[0]) {
  const auto at =
      std::ranges::lower_bound(order, wanted, {}, [&](uint32_t i) -> std::string_view { return items[i].*name; });
  return at != order.end() && items[*at].*name == wanted ? &items[*at] : nullptr;
}

// Weights in FP8 say in blocks of which size they were scaled; other forms of quantized weights are not read.
hf::ScaleBlock read_quantization(const hf::Config& config) {
  hf::ScaleBlock block;
  const hf::Fields quantization = config.sub("quantization_config");
  const std::optional<std::string> method = quantization.find_text("quant_method");
  if (!method) return block;
  if (*method != "fp8" && *method != "compressed-tensors" && *method != "mxfp4") {
    fail("\"{}\": weights quantized by \"{}\" are not read from folders; a GGUF file of the model may work",
         config.path(), printable(*method));
  }
  if (const auto sizes = quantization.find_numbers("weight_block_size")) {
    constexpr double kMost = 1 << 20;
    const bool fits = sizes->size() == 2 && std::ranges::all_of(*sizes, [](double s) { return s >= 1 && s <= kMost; });
    if (!fits) quantization.reject("weight_block_size", "two numbers of 1 or more");
    block = {static_cast<int64_t>((*sizes)[0]), static_cast<int64_t>((*sizes)[1])};
  }
  return block;
}

// What converters write as the file's type: that of most weights.
uint32_t file_type_of(const std::vector<hf::HfTensor>& tensors) {
  uint64_t bytes[3] = {};
  for (const hf::HfTensor& tensor : tensors) {
    if (tensor.shape.rank < 2) continue;
    if (tensor.dtype == DType::f32) bytes[0] += tensor.bytes;
    if (tensor.dtype == DType::f16) bytes[1] += tensor.bytes;
    if (tensor.dtype == DType::bf16) bytes[2] += tensor.bytes;
  }
  constexpr uint32_t kFileTypes[] = {0, 1, 32};
  return kFileTypes[std::max_element(std::begin(bytes), std::end(bytes)) - std::begin(bytes)];
}

std::string last_part(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return std::string(path.substr(path.find_last_of('/') + 1));
}

}  // namespace

HfFolder HfFolder::open(const std::string& path) {
  const std::string config_path = path + "/config.json";
  if (!hf::file_exists(config_path))
    fail("\"{}\" is a folder without a config.json; name a .gguf file, or the folder of a Hugging Face model", path);
  const hf::Json json = hf::parse_json(hf::read_small_file(config_path, kMaxConfigBytes), config_path);
  const hf::Config config(json, config_path);
  const hf::Family& family = hf::find_family(config);
  auto made = std::make_unique<Contents>();
  made->path = path;
  made->block = read_quantization(config);
  made->stored = hf::Safetensors::open_folder(path);
  made->tensors = hf::make_tensors(config, family, made->stored, made->block);
  made->tensors_by_name = sorted_by(made->tensors, &FileTensor::name);
  const auto* embedding = find_by(made->tensors, made->tensors_by_name, "token_embd.weight", &FileTensor::name);
  if (embedding == nullptr) fail("\"{}\": no stored tensor is the embedding of the tokens", path);

  hf::MetadataList metadata{std::string(family.architecture)};
  metadata.set("general.architecture", metadata.architecture());
  metadata.set("general.type", std::string("model"));
  metadata.set("general.name", last_part(path));
  hf::set_model_metadata(config, family, metadata);
  metadata.set("general.file_type", file_type_of(made->tensors));
  metadata.set("general.quantization_version", uint32_t{2});
  hf::set_sampling_metadata(path, metadata);
  hf::set_pooling_metadata(path, metadata);
  hf::set_tokenizer_metadata(path, config, static_cast<uint64_t>(embedding->shape[0]), metadata);
  made->metadata = metadata.take();
  made->keys_by_name = sorted_by(made->metadata, &MetadataEntry::key);
  return HfFolder(std::move(made));
}

HfFolder::HfFolder(std::unique_ptr<const Contents> contents) : contents_(std::move(contents)) {}
HfFolder::~HfFolder() = default;
HfFolder::HfFolder(HfFolder&& other) noexcept = default;
HfFolder& HfFolder::operator=(HfFolder&& other) noexcept = default;

const std::string& HfFolder::path() const {
  return contents_->path;
}

std::vector<std::string> HfFolder::files() const {
  return contents_->stored.files();
}

uint64_t HfFolder::file_bytes() const {
  return contents_->stored.file_bytes();
}

std::span<const MetadataEntry> HfFolder::metadata() const {
  return contents_->metadata;
}

const MetadataValue* HfFolder::find(std::string_view key) const {
  const MetadataEntry* entry = find_by(contents_->metadata, contents_->keys_by_name, key, &MetadataEntry::key);
  return entry == nullptr ? nullptr : &entry->value;
}

size_t HfFolder::tensor_count() const {
  return contents_->tensors.size();
}

const FileTensor& HfFolder::tensor(size_t index) const {
  return contents_->tensors[index];
}

const FileTensor* HfFolder::find_tensor(std::string_view name) const {
  return find_by(contents_->tensors, contents_->tensors_by_name, name, &FileTensor::name);
}

void HfFolder::read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin) const {
  INFERNO_CHECK(begin <= tensor.bytes && out.size() <= tensor.bytes - begin);
  const auto& made = static_cast<const hf::HfTensor&>(tensor);  // this folder gives out no others
  hf::read_recipe(contents_->stored, made, contents_->block, begin, out);
}

}  // namespace inferno
