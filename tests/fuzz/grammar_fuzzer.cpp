// A schema, a pattern or a grammar by the first byte, and after a zero byte a text: it compiles within its limits or is
// an Error of one line; every token that a mask allows is accepted and no other is, and what was taken can be
// completed.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/matcher.h"
#include "grammar/source.h"
#include "inferno/error.h"

namespace {

using namespace inferno::grammar;

// Small, so that a run is short.
constexpr Limits kLimits = {.source_bytes = 1 << 16,
                            .json_values = 2000,
                            .depth = 40,
                            .expressions = 20'000,
                            .nfa_states = 20'000,
                            .machine_states = 20'000,
                            .machine_edges = 40'000,
                            .subset_entries = 40'000,
                            .alternatives = 64,
                            .cache_bytes = 1 << 20,
                            .stack_depth = 40,
                            .parallel_states = 256};

[[noreturn]] void found(const char* what, std::string_view text) {
  std::fprintf(stderr, "%s: %.*s\n", what, static_cast<int>(text.size()), text.data());
  std::abort();
}

std::shared_ptr<const TokenTrie> vocabulary() {
  static const auto kTrie = [] {
    static std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    for (const char* more :
         {"{\"", "\":", "\",\"", "\"}", "[[", "]]", "true", "null", "12", "  ", "\\u00", "\\\"", "abc"}) {
      texts.emplace_back(more);
    }
    texts.emplace_back();
    const std::vector<std::string_view> pieces(texts.begin(), texts.end());
    return std::make_shared<const TokenTrie>(pieces, std::vector<int32_t>{static_cast<int32_t>(texts.size() - 1)});
  }();
  return kTrie;
}

void follow(Grammar& grammar, std::string_view text) {
  const TokenTrie& trie = grammar.trie();
  const int32_t end = trie.vocabulary() - 1;
  Matcher matcher(grammar);
  for (const char c : text.substr(0, 64)) {
    const std::vector<uint32_t> mask(matcher.mask().begin(), matcher.mask().end());
    int allowed = 0;
    int32_t first = -1;
    for (int32_t token = 0; token < trie.vocabulary(); ++token) {
      const bool fits = matcher.accept(token);
      if (fits) matcher.rollback(1);
      const bool is_allowed = (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
      if (fits != is_allowed) found("a mask is wrong about a token", trie.bytes(token));
      if (fits && first < 0) first = token;
      allowed += fits ? 1 : 0;
    }
    // Only the depth of the stack, which is limited, can leave a text without a way on.
    if (allowed == 0) return;
    // The text where it fits, any token that does where not.
    if (!matcher.accept(static_cast<uint8_t>(c)) && !(first != end && matcher.accept(first))) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::string_view source = input.substr(0, input.find('\0'));
  const std::string_view text = source.size() < input.size() ? input.substr(source.size() + 1) : "";
  const SourceKind kinds[] = {SourceKind::json_schema, SourceKind::regex, SourceKind::gbnf};
  try {
    const Source given{.kind = kinds[data[0] % 3], .text = std::string(source), .choices = {}};
    Grammar grammar(parse_source(given, kLimits), vocabulary(), kLimits);
    follow(grammar, text);
  } catch (const inferno::Error& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) {
      found("an Error of several lines", error.what());
    }
  }
  return 0;
}
