#include "template/lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "base/text.h"
#include "template/lexer_numbers.h"
#include "template/unicode.h"

namespace inferno::jinja {
namespace {

struct Symbol {
  std::string_view text;
  TokenType type;
};
// Longer ones first.
constexpr std::array<Symbol, 26> kSymbols = {
    {{"//", TokenType::floor_divide}, {"**", TokenType::power},         {"==", TokenType::equal},
     {"!=", TokenType::not_equal},    {">=", TokenType::greater_equal}, {"<=", TokenType::less_equal},
     {"+", TokenType::add},           {"-", TokenType::subtract},       {"/", TokenType::divide},
     {"*", TokenType::multiply},      {"%", TokenType::modulo},         {"~", TokenType::tilde},
     {"[", TokenType::left_bracket},  {"]", TokenType::right_bracket},  {"(", TokenType::left_paren},
     {")", TokenType::right_paren},   {"{", TokenType::left_brace},     {"}", TokenType::right_brace},
     {">", TokenType::greater},       {"<", TokenType::less},           {"=", TokenType::assign},
     {".", TokenType::dot},           {":", TokenType::colon},          {"|", TokenType::pipe},
     {",", TokenType::comma},         {";", TokenType::semicolon}}};

// Line ends become \n, and the last one goes.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_name_character(char32_t code) {
  return code == '_' || is_alpha(code) || is_decimal(code);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_root();
    add(TokenType::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw SyntaxFailure(line_, message); }
  [[nodiscard]] std::string_view rest() const { return std::string_view(source_).substr(at_); }
  [[nodiscard]] bool looking_at(std::string_view text) const { return rest().starts_with(text); }

  Token& add(TokenType type) {
    tokens_.push_back({.type = type, .line = line_});
    return tokens_.back();
  }
  void advance(size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
    if (count > 0) line_start_ = source_[at_ - 1] == '\n';
  }
  void skip_space() {
    size_t end = at_;
    while (end < source_.size()) {
      const Character c = character_at(source_, end);
      if (!is_space(c.code)) break;
      end += c.size;
    }
    advance(end - at_);
  }
  [[nodiscard]] size_t space_before(size_t begin, size_t end) const {
    while (end > begin) {
      const Character c = character_before(source_, end);
      if (!is_space(c.code)) break;
      end -= c.size;
    }
    return end;
  }

  // The text up to the next tag, and the tag.
  void read_root() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) tag = source_.size();
      if (tag + 1 >= source_.size()) {
        add_data(source_.size());
        return;
      }
      if (source_[tag + 1] == '%' || source_[tag + 1] == '{' || source_[tag + 1] == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    read_text_before(tag, kind, sign);
    if (kind == '%' && read_raw()) return;
    advance(sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') {
      read_comment();
    } else {
      read_tag(kind == '%');
    }
  }

  void add_data(size_t end) {
    if (end > at_) add(TokenType::data).text = source_.substr(at_, end - at_);
    advance(end - at_);
  }

  void read_text_before(size_t tag, char kind, char sign) {
    size_t end = tag;
    if (sign == '-') {
      end = space_before(at_, tag);
    } else if (sign != '+' && kind != '{') {
      // A tag that is alone on its line takes the indentation with it.
      const size_t newline = rest().substr(0, tag - at_).rfind('\n');
      const bool has_newline = newline != std::string_view::npos;
      const size_t line = has_newline ? at_ + newline + 1 : at_;
      if ((has_newline || line_start_) && line < tag && space_before(line, tag) == line) end = line;
    }
    add_data(end);
    advance(tag - at_);
  }

  // {% raw %} ... {% endraw %}; false when the tag is another.
  bool read_raw() {
    size_t end = 0;
    if (!match_raw_tag(at_, "raw", false, end)) return false;
    advance(end - at_);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      if (!match_raw_tag(tag, "endraw", true, end)) continue;
      read_text_before(tag, '%', source_[tag + 2]);
      advance(end - at_);
      return true;
    }
    if (at_ < source_.size()) fail("a raw block has no {% endraw %}");
    return true;
  }

  bool match_raw_tag(size_t at, std::string_view word, bool is_end, size_t& end) const {
    const auto skip = [&](size_t i) {
      while (i < source_.size()) {
        const Character c = character_at(source_, i);
        if (!is_space(c.code)) break;
        i += c.size;
      }
      return i;
    };
    const auto matches = [&](size_t i, std::string_view text) {
      return std::string_view(source_).substr(std::min(i, source_.size())).starts_with(text);
    };
    size_t i = at + 2;
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
    i = skip(i);
    if (!matches(i, word)) return false;
    i = skip(i + word.size());
    if (matches(i, "-%}")) {
      end = skip(i + 3);
    } else if (is_end && matches(i, "+%}")) {
      end = i + 3;
    } else if (matches(i, "%}")) {
      end = i + 2;
      if (is_end && matches(end, "\n")) ++end;
    } else {
      return false;
    }
    return true;
  }

  void read_comment() {
    if (at_ == source_.size()) return;  // an opening that ends the source is no error to jinja2
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment has no #}");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && looking_at("\n")) {
      advance(1);
    }
  }

  // Tokens up to the end of the tag.
  void read_tag(bool is_block) {
    const std::string_view close = is_block ? "%}" : "}}";
    const TokenType end_type = is_block ? TokenType::block_end : TokenType::variable_end;
    add(is_block ? TokenType::block_begin : TokenType::variable_begin);
    std::string open;  // brackets that wait for their partner
    while (true) {
      if (open.empty() && read_end(close, end_type, is_block)) return;
      if (at_ >= source_.size()) fail(fmt::format("a tag has no {}", close));
      if (is_space(character_at(source_, at_).code)) {
        skip_space();
      } else if (!read_number() && !read_name() && !read_string()) {
        read_symbol(open);
      }
    }
  }

  bool read_end(std::string_view close, TokenType type, bool is_block) {
    const bool strips = looking_at("-") && rest().substr(1).starts_with(close);
    const bool keeps = is_block && looking_at("+") && rest().substr(1).starts_with(close);
    if (!strips && !keeps && !looking_at(close)) return false;
    add(type);
    advance(close.size() + (strips || keeps ? 1 : 0));
    if (strips) {
      skip_space();
    } else if (is_block && !keeps && looking_at("\n")) {
      advance(1);
    }
    return true;
  }

  bool read_number() {
    const NumberMatch match = match_number(source_, at_);
    if (match.size == 0) return false;
    if (match.too_large) fail("a number is too large");
    Token& token = add(match.is_float ? TokenType::floating : TokenType::integer);
    token.integer = match.integer;
    token.floating = match.floating;
    advance(match.size);
    return true;
  }

  bool read_name() {
    size_t end = at_;
    while (end < source_.size()) {
      const Character c = character_at(source_, end);
      if (!is_name_character(c.code)) break;
      end += c.size;
    }
    if (end == at_) return false;
    if (is_decimal(character_at(source_, at_).code)) fail("a name begins with a digit");
    add(TokenType::name).text = source_.substr(at_, end - at_);
    advance(end - at_);
    return true;
  }

  bool read_string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string has no end");
    add(TokenType::string).text = unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), line_);
    advance(end + 1 - at_);
    return true;
  }

  void read_symbol(std::string& open) {
    const auto* const found =
        std::find_if(kSymbols.begin(), kSymbols.end(), [&](const Symbol& symbol) { return looking_at(symbol.text); });
    if (found == kSymbols.end()) fail(fmt::format("unexpected \"{}\"", printable(rest(), 4)));
    switch (found->type) {
      case TokenType::left_brace:
        open += '}';
        break;
      case TokenType::left_paren:
        open += ')';
        break;
      case TokenType::left_bracket:
        open += ']';
        break;
      case TokenType::right_brace:
      case TokenType::right_paren:
      case TokenType::right_bracket:
        if (open.empty() || open.back() != found->text[0]) fail(fmt::format("unexpected \"{}\"", found->text));
        open.pop_back();
        break;
      default:
        break;
    }
    add(found->type);
    advance(found->text.size());
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;  // the last thing read ended a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace inferno::jinja
