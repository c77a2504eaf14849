// Metadata that is being put together, each key once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "file/metadata.h"

namespace inferno::hf {

class MetadataList {
 public:
  explicit MetadataList(std::string architecture) : architecture_(std::move(architecture)) {}

  // Replaces what the key had.
  template <typename T>
  void set(std::string key, T value) {
    for (MetadataEntry& entry : entries_) {
      if (entry.key == key) {
        entry.value = MetadataValue(std::move(value));
        return;
      }
    }
    entries_.push_back({std::move(key), MetadataValue(std::move(value))});
  }
  // Of the architecture: "block_count" is "qwen3.block_count".
  void size(std::string_view key, uint32_t value) { set(own(key), value); }
  void number(std::string_view key, double value) { set(own(key), static_cast<float>(value)); }
  void flags(std::string_view key, std::vector<bool> value) { set(own(key), MetadataArray{std::move(value)}); }

  [[nodiscard]] std::string own(std::string_view key) const { return architecture_ + "." + std::string(key); }
  [[nodiscard]] const std::string& architecture() const { return architecture_; }
  [[nodiscard]] std::vector<MetadataEntry> take() { return std::move(entries_); }

 private:
  std::string architecture_;
  std::vector<MetadataEntry> entries_;
};

}  // namespace inferno::hf
