// tokenizer.json: vocabulary, merges and added tokens, read value by value; the rest as a tree.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "file/string_list.h"
#include "hf/json.h"

namespace inferno::hf {

// Far above all real ones; they bound what a hostile file makes us allocate beyond its own size.
inline constexpr size_t kMaxTokens = size_t{1} << 20;
inline constexpr size_t kMaxMerges = size_t{1} << 20;
inline constexpr size_t kMaxAddedTokens = size_t{1} << 16;

struct AddedToken {
  std::string content;
  uint32_t id = 0;
  bool special = false;
};

struct TokenizerJson {
  std::string model;  // "BPE", "WordPiece"
  bool byte_fallback = false;
  bool ignore_merges = false;
  std::string unknown;  // empty: none
  StringList tokens;    // in file order
  std::vector<uint32_t> ids;
  StringList merges;  // "left right"
  std::vector<AddedToken> added;
  Json rest;  // normalizer, pre_tokenizer, post_processor
};

// An Error for what is no such file, and for models other than these. `path` is the text in messages.
[[nodiscard]] TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& path);

// The name of the pre-tokenizer of a byte-level BPE in GGUF files; an Error when it is none that inferno knows.
[[nodiscard]] std::string_view pre_tokenizer_name(const TokenizerJson& tokenizer, const std::string& path);

}  // namespace inferno::hf
