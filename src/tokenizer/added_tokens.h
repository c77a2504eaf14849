// Finds the text of added tokens (<|im_end|> and the like) in a prompt.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "file/vocabulary.h"

namespace inferno {

// Immutable. Keeps views into the vocabulary's token text, which must outlive it.
class AddedTokens {
 public:
  // Takes control, user-defined and unknown tokens. An Error when one is longer than any real one (1,024 bytes): the
  // search takes time in proportion to the longest.
  explicit AddedTokens(const Vocabulary& vocabulary);

  struct Match {
    size_t begin;
    size_t length;
    int32_t id;
  };
  // The leftmost added token at or after `from`, the longest of those that begin there; length 0 when there is none.
  [[nodiscard]] Match find(std::string_view text, size_t from) const;

 private:
  struct Entry {
    std::string_view text;
    int32_t id;
  };
  [[nodiscard]] Match match_at(std::string_view text, size_t begin) const;

  std::vector<Entry> entries_;              // sorted by text, each text once
  std::array<uint32_t, 257> first_byte_{};  // entries beginning with byte b: [first_byte_[b], first_byte_[b + 1])
};

}  // namespace inferno
