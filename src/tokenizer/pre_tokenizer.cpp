#include "tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace inferno {

namespace {

// White space as Unicode defines it (White_Space). PCRE2's own \s also takes U+180E, which is none since Unicode 6.3.
#define INFERNO_SPACE \
  R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"

// One digit, or a stretch without digits.
constexpr const char* kSingleDigits = R"(\p{N}|\P{N}+)";

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" INFERNO_SPACE R"(\p{L}\p{N}]+|[)" INFERNO_SPACE
    R"(]+(?![^)" INFERNO_SPACE R"(])|[)" INFERNO_SPACE R"(]+)";

#define INFERNO_LLAMA3(DIGITS)                                                                       \
  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" DIGITS R"(| ?[^)" INFERNO_SPACE        \
  R"(\p{L}\p{N}]+[\r\n]*|[)" INFERNO_SPACE R"(]*[\r\n]+|[)" INFERNO_SPACE R"(]+(?![^)" INFERNO_SPACE \
  R"(])|[)" INFERNO_SPACE R"(]+)"

constexpr const char* kLlama3 = INFERNO_LLAMA3(R"(\p{N}{1,3})");
constexpr const char* kQwen2 = INFERNO_LLAMA3(R"(\p{N})");
// As qwen2, with marks among the letters.
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^)" INFERNO_SPACE
    R"(\p{L}\p{M}\p{N}]+[\r\n]*|[)" INFERNO_SPACE R"(]*[\r\n]+|[)" INFERNO_SPACE R"(]+(?![^)" INFERNO_SPACE
    R"(])|[)" INFERNO_SPACE R"(]+)";

// Words end where small letters are followed by capital ones. AFTER: what may follow the letters of a word.
#define INFERNO_CASED(AFTER, DIGITS)                                                                  \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" AFTER             \
  R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" AFTER "|" DIGITS \
  R"(| ?[^)" INFERNO_SPACE R"(\p{L}\p{N}]+[\r\n/]*|[)" INFERNO_SPACE R"(]*[\r\n]+|[)" INFERNO_SPACE   \
  R"(]+(?![^)" INFERNO_SPACE R"(])|[)" INFERNO_SPACE R"(]+)"

constexpr const char* kGpt4o = INFERNO_CASED(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)", R"(\p{N}{1,3})");
constexpr const char* kTekken = INFERNO_CASED("", R"(\p{N})");

struct Rule {
  std::string_view name;
  std::array<const char*, 2> patterns;  // applied in turn; null: none
  bool nfc;
  bool ignore_merges;
};

constexpr Rule kRules[] = {
    {"gpt-2", {kGpt2}, false, false},
    {"gpt2", {kGpt2}, false, false},
    {"default", {kGpt2}, false, false},
    {"phi-2", {kGpt2}, false, false},
    {"llama-bpe", {kLlama3}, false, true},
    {"llama3", {kLlama3}, false, true},
    {"llama-v3", {kLlama3}, false, true},
    {"qwen2", {kQwen2}, true, false},
    {"deepseek-r1-qwen", {kQwen2}, false, false},
    {"smollm", {kSingleDigits, kGpt2}, false, false},
    {"starcoder", {kSingleDigits, kGpt2}, false, false},
    {"refact", {kSingleDigits, kGpt2}, false, false},
    {"falcon3", {kLlama3}, false, true},
    {"falcon-h1", {kLlama3}, false, true},
    {"pixtral", {kLlama3}, false, true},
    {"midm-2.0", {kLlama3}, false, true},
    {"lfm2", {kLlama3}, false, true},
    {"jina-v5-nano", {kLlama3}, false, true},
    {"dbrx", {kLlama3}, false, false},
    {"smaug-bpe", {kLlama3}, false, false},
    {"glm4", {kLlama3}, false, false},
    {"chatglm-bpe", {kLlama3}, false, false},
    {"stablelm2", {kQwen2}, false, false},
    {"hunyuan", {kQwen2}, false, false},
    {"solar-open", {kQwen2}, false, false},
    {"megrez", {kQwen2}, false, false},
    {"kormo", {kQwen2}, false, false},
    {"f2llmv2", {kQwen2}, false, false},
    {"grok-2", {kQwen2}, false, false},
    {"mpt", {kGpt2}, false, false},
    {"olmo", {kGpt2}, false, false},
    {"jais", {kGpt2}, false, false},
    {"trillion", {kGpt2}, false, false},
    {"granite-docling", {kGpt2}, false, false},
    {"exaone4", {kGpt2}, false, false},
    {"mellum", {kGpt2}, false, false},
    {"modern-bert", {kGpt2}, false, false},
    {"gigachat", {kGpt2}, false, false},
    {"a.x-4.0", {kGpt2}, false, false},
    {"roberta-bpe", {kGpt2}, false, false},
    {"jina-v1-en", {kGpt2}, false, false},
    {"jina-v2-code", {kGpt2}, false, false},
    {"jina-v2-de", {kGpt2}, false, false},
    {"jina-v2-en", {kGpt2}, false, false},
    {"jina-v2-es", {kGpt2}, false, false},
    {"command-r", {kSingleDigits, kGpt2}, false, false},
    {"codeshell", {kSingleDigits, kGpt2}, false, false},
    {"exaone", {kSingleDigits, kGpt2}, false, false},
    {"minerva-7b", {kSingleDigits, kGpt2}, false, false},
    {"mellum2", {kSingleDigits, kGpt2}, false, false},
    {"qwen35", {kQwen35}, true, false},
    {"gpt-4o", {kGpt4o}, false, false},
    {"llama4", {kGpt4o}, false, false},
    {"kanana2", {kGpt4o}, false, false},
    {"tekken", {kTekken}, false, true},
};

const Rule& find_rule(std::string_view name) {
  std::string known;
  for (const Rule& rule : kRules) {
    if (rule.name == name || (name.empty() && rule.name == "gpt-2")) return rule;
    known += known.empty() ? "" : ", ";
    known += rule.name;
  }
  fail("tokenizer.ggml.pre \"{}\" is not supported (supported: {})", printable(name), known);
}

}  // namespace

class PreTokenizer::Pattern {
 public:
  // PCRE2_ANCHORED: words follow each other without a gap, so a match is always tried where the last one ended.
  explicit Pattern(const char* text) {
    int error = 0;
    size_t offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_ANCHORED, &error,
                          &offset, nullptr);
    INFERNO_CHECK(code_ != nullptr);
    // Without JIT (a system that forbids it) pcre2_match interprets; slower, same result.
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);
    context_ = pcre2_match_context_create(nullptr);
    INFERNO_CHECK(context_ != nullptr);
    // A million spaces backtrack a million times, once; the default limit is meant for patterns from outside.
    pcre2_set_match_limit(context_, std::numeric_limits<uint32_t>::max());
  }
  ~Pattern() {
    pcre2_match_context_free(context_);
    pcre2_code_free(code_);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  void split(std::string_view text, pcre2_match_data* match, std::vector<std::string_view>& words) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    size_t begin = 0;
    while (begin < text.size()) {
      // Valid UTF-8 is promised by the caller; checking again here would cost O(n) per word.
      int found = pcre2_match(code_, subject, text.size(), begin, PCRE2_NO_UTF_CHECK, match, context_);
      if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
        found = pcre2_match(code_, subject, text.size(), begin, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, context_);
      }
      if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        fail("splitting the text into words failed (PCRE2 error {})", found);
      // The patterns match any character; should one not, it is a word by itself and nothing is lost.
      const size_t end =
          found < 0 ? begin + utf8_sequence_length(text.substr(begin)) : pcre2_get_ovector_pointer(match)[1];
      INFERNO_CHECK(end > begin);
      words.push_back(text.substr(begin, end - begin));
      begin = end;
    }
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_context* context_ = nullptr;
};

PreTokenizer::PreTokenizer(std::string_view name) {
  const Rule& rule = find_rule(name);
  for (const char* pattern : rule.patterns) {
    if (pattern != nullptr) patterns_.push_back(std::make_unique<const Pattern>(pattern));
  }
  nfc_ = rule.nfc;
  ignore_merges_ = rule.ignore_merges;
}

PreTokenizer::~PreTokenizer() = default;

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& words) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr),
                                                                                  &pcre2_match_data_free);
  if (match == nullptr) throw std::bad_alloc();
  words.assign(1, text);
  std::vector<std::string_view> pieces;
  for (const auto& pattern : patterns_) {
    pieces.swap(words);
    words.clear();
    for (const std::string_view piece : pieces) pattern->split(piece, match.get(), words);
  }
}

}  // namespace inferno
