#include "hf/config.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace inferno::hf {

const Json* Fields::find(std::string_view key) const {
  for (const Json* object : {first_, second_}) {
    if (object == nullptr) continue;
    const auto at = object->find(key);
    if (at != object->end() && !at->is_null()) return &*at;
  }
  return nullptr;
}

void Fields::reject(std::string_view key, std::string_view expected) const {
  const Json* value = find(key);
  if (value == nullptr) fail("\"{}\" lacks \"{}\", {}", path_, key, expected);
  const std::string text =
      value->is_structured() ? value->type_name() : value->dump(-1, ' ', true, Json::error_handler_t::replace);
  fail("\"{}\": \"{}\" is {}, must be {}", path_, key, printable(text), expected);
}

namespace {

constexpr std::string_view kWhole = "a whole number of 0 to 2^32 - 1";

std::optional<uint32_t> whole_number(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() <= UINT32_MAX) return value.get<uint32_t>();
  // Some writers have 4096.0.
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number >= 0 && number <= UINT32_MAX && number == std::floor(number)) return static_cast<uint32_t>(number);
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint32_t> Fields::find_uint(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<uint32_t> number = whole_number(*value);
  if (!number) reject(key, kWhole);
  return number;
}

uint32_t Fields::get_uint(std::string_view key) const {
  const std::optional<uint32_t> number = find_uint(key);
  if (!number) reject(key, kWhole);
  return *number;
}

std::optional<double> Fields::find_number(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) reject(key, "a number");
  return value->get<double>();
}

std::optional<bool> Fields::find_bool(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) reject(key, "true or false");
  return value->get<bool>();
}

std::optional<std::string> Fields::find_text(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) reject(key, "a string");
  return value->get<std::string>();
}

std::optional<std::vector<std::string>> Fields::find_texts(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) reject(key, "a list of strings");
  std::vector<std::string> texts;
  for (const Json& item : *value) {
    if (!item.is_string()) reject(key, "a list of strings");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

std::optional<std::vector<double>> Fields::find_numbers(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) reject(key, "a list of numbers");
  std::vector<double> numbers;
  for (const Json& item : *value) {
    if (!item.is_number()) reject(key, "a list of numbers");
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

std::optional<uint32_t> Fields::find_uint_of(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) {
    if (has(key)) return find_uint(key);
  }
  return std::nullopt;
}

Fields Fields::sub(std::string_view key) const {
  const Json* value = find(key);
  if (value != nullptr && !value->is_object()) reject(key, "an object");
  return {value, nullptr, path_};
}

namespace {

const Json* text_config(const Json& root, const std::string& path) {
  const auto at = root.find("text_config");
  if (at == root.end() || at->is_null()) return nullptr;
  if (!at->is_object()) fail("\"{}\": \"text_config\" must be an object", path);
  return &*at;
}

}  // namespace

Config::Config(const Json& root, const std::string& path) : Fields(text_config(root, path), &root, path) {}

uint32_t Config::layers() const {
  // Nemotron's newer files have nothing but the list.
  if (!has("num_hidden_layers") && has("layers_block_type"))
    return static_cast<uint32_t>(find_texts("layers_block_type")->size());
  constexpr uint32_t kMost = 65536;  // lists of as many entries are made
  const uint32_t count = get_uint("num_hidden_layers");
  if (count > kMost) reject("num_hidden_layers", "at most 65536");
  return count;
}

uint32_t Config::head_dim() const {
  if (const std::optional<uint32_t> size = find_uint("head_dim")) return *size;
  if (heads() == 0) reject("num_attention_heads", "1 or more");
  return get_uint("hidden_size") / heads();
}

std::optional<std::vector<bool>> Config::layers_of_type(std::string_view type) const {
  const std::optional<std::vector<std::string>> types = find_texts("layer_types");
  if (!types) return std::nullopt;
  if (types->size() < layers()) reject("layer_types", "a list of as many entries as there are layers");
  std::vector<bool> flags;
  for (uint32_t i = 0; i < layers(); ++i) flags.push_back((*types)[i] == type);
  return flags;
}

Fields Config::rope(std::string_view kind) const {
  if (!has("rope_parameters")) return sub("rope_scaling");
  const Fields all = sub("rope_parameters");
  return all.has(kind) ? all.sub(kind) : all;
}

std::optional<double> Config::rope_base(std::string_view kind) const {
  const std::optional<double> base = rope(kind).find_number("rope_theta");
  if (base) return base;
  return kind == "sliding_attention" ? find_number("rope_local_base_freq") : find_number("rope_theta");
}

std::string Config::rope_type() const {
  const Fields fields = rope();
  const std::optional<std::string> type =
      fields.has("rope_type") ? fields.find_text("rope_type") : fields.find_text("type");
  return type.value_or("default");
}

double Config::rotary_factor() const {
  const std::optional<double> factor = rope().find_number("partial_rotary_factor");
  const double value = factor ? *factor : find_number("partial_rotary_factor").value_or(1);
  if (!(value > 0 && value <= 1))
    fail("\"{}\": \"partial_rotary_factor\" is {}, must be above 0 and at most 1", path(), value);
  return value;
}

}  // namespace inferno::hf
