// SentencePiece's compiled normalization: which stretches of a text are replaced, and by what.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace inferno {

// A double array (Darts) over UTF-8 bytes whose values are offsets of strings that end with a zero. Comes from files:
// every index is checked, and one that leads outside is no match.
class Charsmap {
 public:
  Charsmap() = default;  // replaces nothing
  // An Error when the lengths in it do not fit together.
  explicit Charsmap(std::string_view compiled);

  struct Match {
    size_t length = 0;  // of the stretch; 0: there is none
    std::string_view replacement;
  };
  // The longest stretch that `text` begins with.
  [[nodiscard]] Match find(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string strings_;
};

}  // namespace inferno
