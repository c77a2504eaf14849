// config.json and its parts: typed reads whose errors name the file and the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hf/json.h"

namespace inferno::hf {

// Members of an object, with those of a second one where the first lacks them. A member that is null is missing.
class Fields {
 public:
  Fields() = default;
  Fields(const Json* first, const Json* second, std::string path)
      : first_(first), second_(second), path_(std::move(path)) {}

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const Json* find(std::string_view key) const;  // null: missing
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  // Numbers of 0 to 2^32 - 1. find_*: empty when missing; a value of another kind is an Error in all of them.
  [[nodiscard]] std::optional<uint32_t> find_uint(std::string_view key) const;
  [[nodiscard]] uint32_t get_uint(std::string_view key) const;
  [[nodiscard]] std::optional<double> find_number(std::string_view key) const;
  [[nodiscard]] std::optional<bool> find_bool(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> find_text(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<std::string>> find_texts(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<double>> find_numbers(std::string_view key) const;
  // The first of several names that is there.
  [[nodiscard]] std::optional<uint32_t> find_uint_of(std::initializer_list<std::string_view> keys) const;
  // A member that is an object.
  [[nodiscard]] Fields sub(std::string_view key) const;

  [[noreturn]] void reject(std::string_view key, std::string_view expected) const;

 private:
  const Json* first_ = nullptr;
  const Json* second_ = nullptr;
  std::string path_;
};

// The settings of the language model: members of "text_config" where there is one, else of the whole.
class Config : public Fields {
 public:
  // `root` is the file's content and must outlive the object.
  Config(const Json& root, const std::string& path);

  [[nodiscard]] uint32_t layers() const;
  [[nodiscard]] uint32_t heads() const { return get_uint("num_attention_heads"); }
  [[nodiscard]] uint32_t kv_heads() const { return find_uint("num_key_value_heads").value_or(heads()); }
  [[nodiscard]] uint32_t head_dim() const;
  [[nodiscard]] bool is_tied() const { return find_bool("tie_word_embeddings").value_or(false); }
  // Which layers have a window, where layer_types says it; as many as there are layers.
  [[nodiscard]] std::optional<std::vector<bool>> layers_of_type(std::string_view type) const;

  // Settings of rope in both forms: "rope_parameters" (by kind of layer or one for all), or "rope_theta" and
  // "rope_scaling". `kind`: "full_attention", "sliding_attention".
  [[nodiscard]] Fields rope(std::string_view kind = "full_attention") const;
  [[nodiscard]] std::optional<double> rope_base(std::string_view kind = "full_attention") const;
  [[nodiscard]] std::string rope_type() const;  // "default", "linear", "yarn", "llama3", "longrope", ...
  // The share of a head's dimensions that are rotated.
  [[nodiscard]] double rotary_factor() const;
};

}  // namespace inferno::hf
