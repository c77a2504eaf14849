#include "engine/prompt.h"

#include <algorithm>

namespace inferno {

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.parse_special = true, .add_bos = tokenizer.wants_bos()});
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                 const ChatOptions& options) {
  return tokenizer.encode(ChatFormat::from_tokenizer(tokenizer, options.chat_template).render(messages, options));
}

std::vector<int32_t> keep_ids(const Tokenizer& tokenizer, std::span<const int32_t> before,
                              std::span<const int32_t> ids) {
  const auto is_plain = [&](int32_t id) {
    return tokenizer.type(id) == TokenType::normal || tokenizer.type(id) == TokenType::byte;
  };
  std::string_view x, y;  // bytes left of the current tokens
  size_t i = 0, j = 0;    // the tokens after them
  size_t kept = 0, rest = 0;
  while (true) {
    if (x.empty() && y.empty()) {
      kept = i;
      rest = j;
    }
    if (x.empty()) {
      if (i == before.size()) break;
      if (!is_plain(before[i])) {
        if (!y.empty() || j == ids.size() || ids[j] != before[i]) break;
        ++i, ++j;
        continue;
      }
      x = tokenizer.piece(before[i++]);
    }
    if (y.empty()) {
      if (j == ids.size() || !is_plain(ids[j])) break;
      y = tokenizer.piece(ids[j++]);
    }
    const size_t common = std::min(x.size(), y.size());
    if (x.substr(0, common) != y.substr(0, common)) break;
    x.remove_prefix(common);
    y.remove_prefix(common);
  }
  std::vector<int32_t> result(before.begin(), before.begin() + static_cast<ptrdiff_t>(kept));
  result.insert(result.end(), ids.begin() + static_cast<ptrdiff_t>(rest), ids.end());
  return result;
}

}  // namespace inferno
