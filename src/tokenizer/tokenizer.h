// Text to token ids and back.
//
// Five kinds, chosen by the vocabulary: byte-level BPE ("gpt2"), SentencePiece-style BPE ("llama"), BPE of characters
// ("gemma4"), and for embedding models WordPiece ("bert") and Unigram ("t5"). All take any bytes. In the first three
// what is not UTF-8 is encoded by its bytes, never replaced, and decode() gives it back; the others normalize texts
// (wordpiece.h, unigram.h). What a vocabulary lacks is an Error, or becomes its unknown token (not in byte-level BPE).
// Encoding takes O(n log n) time and O(n) memory. A Tokenizer is immutable and may be used from several threads at
// once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/prompt_piece.h"
#include "file/vocabulary.h"

namespace inferno {

class AddedTokens;

struct EncodeOptions {
  // Recognise the text of added tokens (control and user-defined, such as <|im_end|>); without it they are plain text.
  bool parse_special = true;
  bool add_bos = false;  // put bos before, when the vocabulary has one
  bool add_eos = false;  // put eos after, when the vocabulary has one
};

class Tokenizer {
 public:
  // An Error when the vocabulary contradicts itself or names an unknown model or pre-tokenizer.
  [[nodiscard]] static std::unique_ptr<const Tokenizer> create(Vocabulary vocabulary);
  // Null when the file has no vocabulary, or this build no tokenizers.
  [[nodiscard]] static std::unique_ptr<const Tokenizer> load(const ModelFile& file);
  virtual ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Pieces that follow each other; text that spans several of them is encoded as if it were one.
  [[nodiscard]] std::vector<int32_t> encode(std::span<const PromptPiece> pieces) const;
  // The bytes of the ids, added tokens as their text; not always whole UTF-8 (see StreamDecoder).
  [[nodiscard]] std::string decode(std::span<const int32_t> ids) const;
  // The bytes of one token; valid as long as the tokenizer. An id outside the vocabulary is an Error.
  [[nodiscard]] std::string_view piece(int32_t id) const;

  [[nodiscard]] int32_t vocab_size() const { return vocabulary_.size(); }
  [[nodiscard]] TokenType type(int32_t id) const;
  // The token with exactly this text (as stored in the file), added tokens included.
  [[nodiscard]] std::optional<int32_t> find(std::string_view text) const;
  // Generation stops at these: eos, eot, eom, and control tokens known to end a turn or a text by their name.
  [[nodiscard]] bool is_end_token(int32_t id) const;
  [[nodiscard]] std::span<const int32_t> end_tokens() const { return end_tokens_; }
  [[nodiscard]] std::optional<int32_t> bos() const { return vocabulary_.bos; }
  [[nodiscard]] std::optional<int32_t> eos() const { return vocabulary_.eos; }
  // What the file says a prompt should have; encode() follows its options alone.
  [[nodiscard]] bool wants_bos() const { return vocabulary_.add_bos && vocabulary_.bos.has_value(); }
  [[nodiscard]] bool wants_eos() const { return vocabulary_.add_eos && vocabulary_.eos.has_value(); }
  [[nodiscard]] const std::string& chat_template() const { return vocabulary_.chat_template; }

 protected:
  explicit Tokenizer(Vocabulary vocabulary);
  // Appends the ids of text that holds no added token. Called once per stretch between added tokens; never empty.
  virtual void encode_plain(std::string_view text, std::vector<int32_t>& ids) const = 0;

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }
  // Frees what is needed only while the indexes are built.
  void drop_merges() { vocabulary_.merges = {}; }
  StringList pieces_;  // (vocab_size) bytes of each token; filled by the concrete class

 private:
  void check_id(int32_t id) const;
  static void check_size(size_t bytes);

  Vocabulary vocabulary_;
  std::unique_ptr<const AddedTokens> added_;
  std::vector<int32_t> end_tokens_;  // sorted
};

}  // namespace inferno
