#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "tokenizer/added_tokens.h"

namespace inferno {

namespace {

// Files often name only one end token although the model was trained with several.
constexpr std::array<std::string_view, 15> kEndNames = {"<|endoftext|>",
                                                        "<|im_end|>",
                                                        "<|end_of_text|>",
                                                        "<|eot_id|>",
                                                        "<|eom_id|>",
                                                        "<|end|>",
                                                        "<end_of_turn>",
                                                        "<|endofturn|>",
                                                        "</s>",
                                                        "<turn|>",
                                                        "<|return|>",
                                                        "<|call|>",
                                                        "<|eot|>",
                                                        "[e~[",
                                                        "<\xEF\xBD\x9C"
                                                        "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};

bool is_added(TokenType type) {
  return type == TokenType::control || type == TokenType::user_defined;
}

bool has_added(const Vocabulary& vocabulary, std::string_view token) {
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const auto i = static_cast<size_t>(id);
    if (is_added(vocabulary.types[i]) && vocabulary.tokens[i] == token) return true;
  }
  return false;
}

std::vector<int32_t> find_end_tokens(const Vocabulary& vocabulary) {
  std::vector<int32_t> ends;
  for (const std::optional<int32_t>& id : {vocabulary.eos, vocabulary.eot, vocabulary.eom}) {
    if (id) ends.push_back(*id);
  }
  const bool harmony = has_added(vocabulary, "<|return|>") && has_added(vocabulary, "<|call|>");
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const auto i = static_cast<size_t>(id);
    if (!is_added(vocabulary.types[i])) continue;
    // In the harmony format it ends one message of an answer, and others follow.
    if (harmony && vocabulary.tokens[i] == "<|end|>") continue;
    if (std::find(kEndNames.begin(), kEndNames.end(), vocabulary.tokens[i]) != kEndNames.end()) ends.push_back(id);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)),
      added_(std::make_unique<const AddedTokens>(vocabulary_)),
      end_tokens_(find_end_tokens(vocabulary_)) {}

Tokenizer::~Tokenizer() = default;

void Tokenizer::check_size(size_t bytes) {
  // A space may grow to three bytes inside, and positions are 32 bits wide.
  constexpr size_t kMaxBytes = std::numeric_limits<int32_t>::max() / 4;
  if (bytes > kMaxBytes) fail("the text has {} bytes; at most {} can be encoded at once", bytes, kMaxBytes);
}

std::vector<int32_t> Tokenizer::encode(std::span<const PromptPiece> pieces) const {
  std::vector<int32_t> ids;
  std::string plain;
  const auto flush = [&] {
    if (!plain.empty()) encode_plain(plain, ids);
    plain.clear();
  };
  size_t bytes = 0;
  for (const PromptPiece& piece : pieces) {
    check_size(bytes += piece.text.size());
    size_t done = 0;
    while (done < piece.text.size()) {
      AddedTokens::Match added{piece.text.size(), 0, -1};
      if (piece.control) added = added_->find(piece.text, done);
      plain.append(piece.text, done, added.begin - done);
      if (added.length > 0) {
        flush();
        ids.push_back(added.id);
      }
      done = added.begin + added.length;
    }
  }
  flush();
  return ids;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  check_size(text.size());
  std::vector<int32_t> ids;
  if (options.add_bos && vocabulary_.bos) ids.push_back(*vocabulary_.bos);
  size_t done = 0;
  while (done < text.size()) {
    AddedTokens::Match added{text.size(), 0, -1};
    if (options.parse_special) added = added_->find(text, done);
    if (added.begin > done) encode_plain(text.substr(done, added.begin - done), ids);
    if (added.length > 0) ids.push_back(added.id);
    done = added.begin + added.length;
  }
  if (options.add_eos && vocabulary_.eos) ids.push_back(*vocabulary_.eos);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids) bytes += piece(id);
  return bytes;
}

void Tokenizer::check_id(int32_t id) const {
  if (id < 0 || id >= vocab_size()) fail("token id {} is outside the vocabulary of {} tokens", id, vocab_size());
}

std::string_view Tokenizer::piece(int32_t id) const {
  check_id(id);
  return pieces_[static_cast<size_t>(id)];
}

TokenType Tokenizer::type(int32_t id) const {
  check_id(id);
  return vocabulary_.types[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::find(std::string_view text) const {
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    if (vocabulary_.tokens[i] == text) return static_cast<int32_t>(i);
  }
  return std::nullopt;
}

bool Tokenizer::is_end_token(int32_t id) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), id);
}

}  // namespace inferno
