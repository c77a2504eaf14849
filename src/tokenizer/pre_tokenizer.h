// Splits text into the words that byte-level BPE merges within, by the patterns that models were trained with.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

namespace inferno {

// Immutable and thread safe. PCRE2 does the matching; its types stay in the .cpp file.
class PreTokenizer {
 public:
  // `name` is the value of tokenizer.ggml.pre; empty means gpt-2. An unknown name is an Error that lists the known.
  explicit PreTokenizer(std::string_view name);
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  // Text is brought to normalization form C before it is split.
  [[nodiscard]] bool wants_nfc() const { return nfc_; }
  // A word that is a token as a whole is that token, whatever the merges say.
  [[nodiscard]] bool ignores_merges() const { return ignore_merges_; }
  // Replaces `words` by the words of `text`, which must be valid UTF-8: in order, none empty, covering all of it.
  void split(std::string_view text, std::vector<std::string_view>& words) const;

 private:
  class Pattern;

  std::vector<std::unique_ptr<const Pattern>> patterns_;  // each splits what the one before it left
  bool nfc_ = false;
  bool ignore_merges_ = false;
};

}  // namespace inferno
