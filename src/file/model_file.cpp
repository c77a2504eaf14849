#include "file/model_file.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace inferno {
namespace {

template <typename T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

}  // namespace

// ---- metadata

void ModelFile::fail_type(std::string_view key, std::string_view expected, const MetadataValue& value) const {
  fail("\"{}\": metadata key \"{}\" must be {}, not {} ({})", path(), printable(key), expected, value.type_text(),
       value_to_string(value, 40));
}

template <typename Items>
const Items* ModelFile::items_of(const MetadataValue& value) {
  const auto* array = value.as<MetadataArray>();
  return array == nullptr ? nullptr : std::get_if<Items>(&array->items);
}

bool ModelFile::is_array(std::string_view key) const {
  const MetadataValue* value = find(key);
  return value != nullptr && value->type() == MetadataType::array;
}

const std::string* ModelFile::find_string(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* text = value->as<std::string>();
  if (text == nullptr) fail_type(key, "a string", *value);
  return text;
}

std::optional<uint64_t> ModelFile::find_uint(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<uint64_t> number = as_uint64(*value);
  if (!number) fail_type(key, "a whole number of at least 0", *value);
  return number;
}

std::optional<int64_t> ModelFile::find_int(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = as_int64(*value);
  if (!number) fail_type(key, "a whole number that fits in i64", *value);
  return number;
}

std::optional<double> ModelFile::find_float(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> number = as_double(*value);
  if (!number) fail_type(key, "f32 or f64", *value);
  return number;
}

std::optional<bool> ModelFile::find_bool(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* flag = value->as<bool>();
  if (flag == nullptr) fail_type(key, "a bool", *value);
  return *flag;
}

const StringList* ModelFile::find_strings(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* strings = items_of<StringList>(*value);
  if (strings == nullptr) fail_type(key, "an array of strings", *value);
  return strings;
}

std::optional<std::vector<int64_t>> ModelFile::find_ints(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> numbers;
  bool valid = false;
  if (const auto* array = value->as<MetadataArray>()) {
    std::visit(
        [&]<typename Items>(const Items& items) {
          if constexpr (requires { requires kIsInteger<typename Items::value_type>; }) {
            valid = std::ranges::all_of(items, [](auto item) { return std::in_range<int64_t>(item); });
            if (valid) numbers.assign(items.begin(), items.end());
          }
        },
        array->items);
  }
  if (!valid) fail_type(key, "an array of whole numbers", *value);
  return numbers;
}

std::optional<std::vector<float>> ModelFile::find_floats(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* singles = items_of<std::vector<float>>(*value)) return *singles;
  const auto* doubles = items_of<std::vector<double>>(*value);
  if (doubles == nullptr) fail_type(key, "an array of f32 or f64", *value);
  std::vector<float> numbers(doubles->size());
  std::ranges::transform(*doubles, numbers.begin(), [](double number) { return static_cast<float>(number); });
  return numbers;
}

std::optional<std::vector<bool>> ModelFile::find_bools(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* flags = items_of<std::vector<bool>>(*value);
  if (flags == nullptr) fail_type(key, "an array of bools", *value);
  return *flags;
}

void ModelFile::require(std::string_view key) const {
  if (find(key) == nullptr)
    fail("\"{}\" lacks the metadata key \"{}\": it is not a complete model of this kind", path(), printable(key));
}

const std::string& ModelFile::get_string(std::string_view key) const {
  require(key);
  return *find_string(key);
}

uint64_t ModelFile::get_uint(std::string_view key) const {
  require(key);
  return *find_uint(key);
}

int64_t ModelFile::get_int(std::string_view key) const {
  require(key);
  return *find_int(key);
}

double ModelFile::get_float(std::string_view key) const {
  require(key);
  return *find_float(key);
}

bool ModelFile::get_bool(std::string_view key) const {
  require(key);
  return *find_bool(key);
}

const StringList& ModelFile::get_strings(std::string_view key) const {
  require(key);
  return *find_strings(key);
}

std::vector<int64_t> ModelFile::get_ints(std::string_view key) const {
  require(key);
  return *find_ints(key);
}

std::vector<float> ModelFile::get_floats(std::string_view key) const {
  require(key);
  return *find_floats(key);
}

// ---- tensors

const FileTensor& ModelFile::get_tensor(std::string_view name) const {
  const FileTensor* found = find_tensor(name);
  if (found == nullptr) fail("\"{}\" lacks the tensor \"{}\"", path(), printable(name));
  return *found;
}

// ---- vocabulary

bool ModelFile::has_vocabulary() const {
  return find(kTokenizerModelKey) != nullptr;
}

Vocabulary ModelFile::vocabulary() const {
  return load_vocabulary(*this);
}

}  // namespace inferno
