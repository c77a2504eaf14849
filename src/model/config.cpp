#include "model/config.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

constexpr std::array kArchitectures = {&kQwen3, &kQwen2, &kLlama};

// Larger than any model, small enough that products of two fit in 64 bits with room to spare.
constexpr uint64_t kMaxSize = uint64_t{1} << 24;

const Architecture& find_architecture(const ModelFile& file) {
  const std::string& name = file.get_string("general.architecture");
  std::string known;
  for (const Architecture* architecture : kArchitectures) {
    if (architecture->name == name) return *architecture;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", architecture->name);
  }
  fail("\"{}\" holds a model of architecture \"{}\", which inferno does not know (known: {})", file.path(),
       printable(name), known);
}

// Reads keys of the form ARCHITECTURE.SUFFIX.
class Reader {
 public:
  Reader(const ModelFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  [[nodiscard]] std::optional<int32_t> find_size(std::string_view suffix, uint64_t most) const {
    const std::string key = prefix_ + std::string(suffix);
    const std::optional<uint64_t> value = file_.find_uint(key);
    if (!value) return std::nullopt;
    if (*value == 0 || *value > most) fail("\"{}\": {} is {}, must be 1 to {}", file_.path(), key, *value, most);
    return static_cast<int32_t>(*value);
  }
  [[nodiscard]] int32_t size(std::string_view suffix, uint64_t most = kMaxSize) const {
    const std::optional<int32_t> value = find_size(suffix, most);
    if (!value) fail("\"{}\" lacks the key {}{}", file_.path(), prefix_, suffix);
    return *value;
  }
  [[nodiscard]] double positive(std::string_view suffix, std::optional<double> fallback) const {
    const std::string key = prefix_ + std::string(suffix);
    const std::optional<double> value = file_.find_float(key);
    if (!value && !fallback) fail("\"{}\" lacks the key {}", file_.path(), key);
    const double result = value.value_or(fallback.value_or(0));
    if (!(result > 0) || !std::isfinite(result)) {
      fail("\"{}\": {} is {}, must be a positive number", file_.path(), key, result);
    }
    return result;
  }
  [[nodiscard]] const std::string* find_string(std::string_view suffix) const {
    return file_.find_string(prefix_ + std::string(suffix));
  }

 private:
  const ModelFile& file_;
  std::string prefix_;
};

void read_rope(const ModelFile& file, const Reader& keys, ModelConfig& config) {
  config.rope_base = keys.positive("rope.freq_base", 10000.0);
  config.rotated_dims = keys.find_size("rope.dimension_count", kMaxSize).value_or(config.head_dim);
  if (config.rotated_dims % 2 != 0 || config.rotated_dims > config.head_dim) {
    fail("\"{}\": {}.rope.dimension_count is {}, must be even and at most the head's {}", file.path(),
         config.architecture, config.rotated_dims, config.head_dim);
  }
  const std::string* scaling = keys.find_string("rope.scaling.type");
  if (scaling == nullptr || *scaling == "none") return;
  if (*scaling != "linear") {
    fail(
        "\"{}\": rope scaling of type \"{}\" is not supported (supported: none, linear, and Llama 3's as "
        "rope_freqs.weight)",
        file.path(), printable(*scaling));
  }
  config.rope_position_scale = 1 / keys.positive("rope.scaling.factor", 1.0);
}

}  // namespace

ModelConfig read_config(const ModelFile& file) {
  const Architecture& architecture = find_architecture(file);
  const Reader keys(file, architecture.name);
  ModelConfig config;
  config.architecture = architecture.name;
  const std::string* name = file.find_string("general.name");
  config.name = name != nullptr ? *name : "";
  config.layers = keys.size("block_count", kMaxLayers);
  config.width = keys.size("embedding_length");
  config.ffn = keys.size("feed_forward_length");
  config.context = keys.size("context_length");
  config.q_heads = keys.size("attention.head_count");
  config.kv_heads = keys.find_size("attention.head_count_kv", kMaxSize).value_or(config.q_heads);
  if (config.q_heads % config.kv_heads != 0) {
    fail("\"{}\": {} query heads cannot share {} key-value heads evenly", file.path(), config.q_heads, config.kv_heads);
  }
  const std::optional<int32_t> key_length = keys.find_size("attention.key_length", kMaxSize);
  if (!key_length && config.width % config.q_heads != 0) {
    fail("\"{}\": width {} does not divide into {} heads", file.path(), config.width, config.q_heads);
  }
  config.head_dim = key_length.value_or(config.width / config.q_heads);
  if (keys.find_size("attention.value_length", kMaxSize).value_or(config.head_dim) != config.head_dim) {
    fail("\"{}\": keys and values of different lengths are not supported", file.path());
  }
  config.norm_eps = static_cast<float>(keys.positive("attention.layer_norm_rms_epsilon", std::nullopt));
  read_rope(file, keys, config);
  const FileTensor& embedding = file.get_tensor("token_embd.weight");
  if (embedding.shape.rank != 2 || embedding.shape[0] > static_cast<int64_t>(kMaxSize)) {
    fail("\"{}\": token_embd.weight has shape {}, must be [vocabulary, width]", file.path(),
         to_string(embedding.shape));
  }
  config.vocabulary = static_cast<int32_t>(embedding.shape[0]);
  architecture.configure(config);
  return config;
}

}  // namespace inferno
