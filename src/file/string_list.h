// A list of strings kept as one block of text; a vocabulary of 150,000 tokens costs two allocations.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace inferno {

class StringList {
 public:
  StringList() = default;
  explicit StringList(const std::vector<std::string>& strings);

  [[nodiscard]] size_t size() const { return ends_.size(); }
  [[nodiscard]] bool empty() const { return ends_.empty(); }
  [[nodiscard]] std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }
  void reserve(size_t count, size_t text_bytes);
  // The returned room of `length` bytes is to be filled by the caller before the next call.
  char* append(size_t length);
  void append(std::string_view text);
  friend bool operator==(const StringList&, const StringList&) = default;

 private:
  std::string text_;
  std::vector<size_t> ends_;  // (size): where string i ends in text_
};

}  // namespace inferno
