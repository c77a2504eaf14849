// Requests under a grammar, over a model whose vocabulary is only numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/masks.h"
#include "engine/request.h"
#include "grammar/source.h"

namespace inferno::testing {

// Tokens of letters and of what JSON needs, as many as the model has; the last one ends a text. Words may be written in
// several ways where there are single letters.
inline std::shared_ptr<const grammar::TokenTrie> json_tokens(int32_t vocabulary, bool single_letters = false) {
  std::vector<std::string> texts = {"[", "]", "\"", ",", " ", "\",\"", "\"]", "\\n", "é", "{", "}", ":", "{\"", "\":"};
  for (int32_t i = static_cast<int32_t>(texts.size()); i < vocabulary - 1; ++i) {
    std::string pair = {static_cast<char>('a' + i % 26), static_cast<char>('a' + i / 26 % 26)};
    if (single_letters && i % 7 == 0) pair.pop_back();
    texts.push_back(std::move(pair));
  }
  texts.emplace_back();
  const std::vector<std::string_view> pieces(texts.begin(), texts.end());
  return std::make_shared<const grammar::TokenTrie>(pieces, std::vector<int32_t>{vocabulary - 1});
}

inline std::shared_ptr<SharedGrammar> shared_schema(const std::string& schema,
                                                    std::shared_ptr<const grammar::TokenTrie> trie) {
  const grammar::Limits limits;
  return std::make_shared<SharedGrammar>(
      grammar::parse_source({.kind = grammar::SourceKind::json_schema, .text = schema, .choices = {}}, limits),
      std::move(trie), limits);
}

inline void constrain(Request& request, const std::shared_ptr<Masks>& masks) {
  request.mask_ready = [masks](int32_t sample, std::span<const int32_t> ids, int32_t guessed) {
    return masks->ready(sample, ids, guessed);
  };
  request.forced = [masks](int32_t sample, std::span<const int32_t> ids, std::span<int32_t> out) {
    return masks->forced(sample, ids, out);
  };
  request.allowed = [masks](int32_t sample, std::span<const int32_t> ids) { return masks->mask(sample, ids); };
}

}  // namespace inferno::testing
