// For tests: grammars over a vocabulary of single bytes and some longer tokens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "grammar/matcher.h"
#include "grammar/source.h"

namespace inferno::grammar {

// Ids 0 to 255 are bytes, then come the given texts; the last id is the end token.
inline std::shared_ptr<const TokenTrie> byte_trie(const std::vector<std::string>& more = {}) {
  static const std::string kBytes = [] {
    std::string all;
    for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
    return all;
  }();
  std::vector<std::string_view> pieces;
  for (size_t i = 0; i < 256; ++i) pieces.push_back(std::string_view(kBytes).substr(i, 1));
  for (const std::string& text : more) pieces.emplace_back(text);
  pieces.emplace_back();
  const auto end = static_cast<int32_t>(pieces.size() - 1);
  return std::make_shared<const TokenTrie>(pieces, std::vector<int32_t>{end});
}

inline Grammar make_grammar(const Source& source, const std::vector<std::string>& more = {},
                            const Limits& limits = {}) {
  return {parse_source(source, limits), byte_trie(more), limits};
}

// Whether the grammar takes the whole text, byte by byte.
inline bool takes(Grammar& grammar, std::string_view text) {
  Matcher matcher(grammar);
  for (const char c : text) {
    if (!matcher.accept(static_cast<uint8_t>(c))) return false;
  }
  return matcher.may_end();
}
inline bool schema_takes(const std::string& schema, std::string_view text) {
  Grammar grammar = make_grammar({.kind = SourceKind::json_schema, .text = schema, .choices = {}});
  return takes(grammar, text);
}
inline bool regex_takes(const std::string& pattern, std::string_view text) {
  Grammar grammar = make_grammar({.kind = SourceKind::regex, .text = pattern, .choices = {}});
  return takes(grammar, text);
}
inline bool gbnf_takes(const std::string& source, std::string_view text) {
  Grammar grammar = make_grammar({.kind = SourceKind::gbnf, .text = source, .choices = {}});
  return takes(grammar, text);
}

// The message of the Error that a source is; empty: it is none.
inline std::string error_of(SourceKind kind, const std::string& text) {
  try {
    const Grammar grammar = make_grammar({.kind = kind, .text = text, .choices = {}});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool allows(std::span<const uint32_t> mask, int32_t token) {
  const auto i = static_cast<size_t>(token);
  return (mask[i / 32] >> (i % 32) & 1) != 0;
}

}  // namespace inferno::grammar
