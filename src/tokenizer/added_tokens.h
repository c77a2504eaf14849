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
  // Takes control, user-defined and unknown tokens. An Error when one is longer than any real one (1,024 bytes), or all
  // of them together (1 MiB).
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
    int32_t parent = -1;  // the longest other entry that this one begins with
    int32_t jump = -1;    // one of the parents' parents: the way to any of them takes O(log n) steps
    int32_t depth = 0;    // number of parents
  };
  void link();
  [[nodiscard]] Match match_at(std::string_view text, size_t begin) const;
  [[nodiscard]] size_t length(int32_t entry) const { return entries_[static_cast<size_t>(entry)].text.size(); }

  std::vector<Entry> entries_;              // sorted by text, each text once
  std::array<uint32_t, 257> first_byte_{};  // entries beginning with byte b: [first_byte_[b], first_byte_[b + 1])
};

}  // namespace inferno
