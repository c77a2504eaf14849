// The hyper-parameters of one architecture in a file's metadata: keys of the form ARCHITECTURE.SUFFIX.
//
// A missing key, a value of another type or one that makes no sense is an Error that names the file and the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "file/model_file.h"

namespace inferno {

class ConfigKeys {
 public:
  // Larger than any size of a model, small enough that products of two fit in 64 bits with room to spare.
  static constexpr uint64_t kMaxSize = uint64_t{1} << 24;

  ConfigKeys(const ModelFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  [[nodiscard]] const ModelFile& file() const { return file_; }
  [[nodiscard]] std::string key(std::string_view suffix) const { return prefix_ + std::string(suffix); }

  [[nodiscard]] bool has(std::string_view suffix) const { return file_.find(key(suffix)) != nullptr; }
  // 1 to `most`.
  [[nodiscard]] int32_t size(std::string_view suffix, uint64_t most = kMaxSize) const;
  [[nodiscard]] std::optional<int32_t> find_size(std::string_view suffix) const;
  // A size for each of `layers` layers: the key holds one for all, or an array of one each, `least` or more.
  [[nodiscard]] std::vector<int32_t> layer_sizes(std::string_view suffix, int32_t layers) const;
  [[nodiscard]] std::optional<std::vector<int32_t>> find_layer_sizes(std::string_view suffix, int32_t layers,
                                                                     int32_t least = 1) const;
  // A number above 0.
  [[nodiscard]] double positive(std::string_view suffix, std::optional<double> fallback) const;
  // The same for a number that is computed with in float: it must still be above 0 there.
  [[nodiscard]] float positive_float(std::string_view suffix, std::optional<double> fallback = std::nullopt) const;
  [[nodiscard]] const std::string* find_string(std::string_view suffix) const { return file_.find_string(key(suffix)); }

 private:
  [[noreturn]] void fail_missing(std::string_view suffix) const;

  const ModelFile& file_;
  std::string prefix_;
};

}  // namespace inferno
