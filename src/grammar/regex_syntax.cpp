#include "grammar/regex_syntax.h"

#include <algorithm>
#include <optional>

#include "grammar/expression.h"
#include "grammar/utf8_reader.h"

namespace inferno::grammar {
namespace {

using Kind = RegexNode::Kind;

constexpr uint32_t kMaxRepeat = 10'000'000;

const CharSet& digits() {
  static const CharSet kSet = {{'0', '9'}};
  return kSet;
}
const CharSet& word_chars() {
  static const CharSet kSet = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return kSet;
}
const CharSet& spaces() {
  static const CharSet kSet = {{0x09, 0x0D},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                               {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                               {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return kSet;
}
const CharSet& line_ends() {
  static const CharSet kSet = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return kSet;
}

class RegexParser {
 public:
  RegexParser(std::string_view pattern, const Limits& limits) : in_(pattern, "the pattern"), limits_(limits) {}

  RegexNode run() {
    RegexNode all = alternatives(0);
    if (!in_.at_end()) in_.wrong("there is a ) too many");
    return all;
  }

 private:
  static RegexNode of_chars(CharSet set) { return {.kind = Kind::chars, .chars = std::move(set)}; }

  RegexNode alternatives(int depth) {
    if (depth > limits_.depth) in_.wrong("groups are nested more than {} deep", limits_.depth);
    RegexNode choice{.kind = Kind::choice};
    do {
      choice.parts.push_back(sequence(depth));
    } while (in_.skip("|"));
    return choice.parts.size() == 1 ? std::move(choice.parts[0]) : std::move(choice);
  }

  RegexNode sequence(int depth) {
    RegexNode parts{.kind = Kind::sequence};
    while (!in_.at_end() && in_.peek() != '|' && in_.peek() != ')') {
      parts.parts.push_back(repeated(atom(depth)));
    }
    return parts;
  }

  RegexNode repeated(RegexNode body) {
    while (const std::optional<std::pair<uint32_t, uint32_t>> times = quantifier()) {
      if (body.kind == Kind::begin || body.kind == Kind::end) in_.wrong("an anchor cannot be repeated");
      if (times->first > times->second) in_.wrong("a repetition {{m,n}} has m above n");
      in_.skip("?");  // lazy: the same texts
      RegexNode repeat{.kind = Kind::repeat, .least = times->first, .most = times->second};
      repeat.parts.push_back(std::move(body));
      body = std::move(repeat);
      if (++nested_repeats_ > limits_.depth) in_.wrong("too many repetitions of repetitions");
    }
    nested_repeats_ = 0;
    return body;
  }

  std::optional<std::pair<uint32_t, uint32_t>> quantifier() {
    if (in_.skip("*")) return std::pair{0U, kUnlimited};
    if (in_.skip("+")) return std::pair{1U, kUnlimited};
    if (in_.skip("?")) return std::pair{0U, 1U};
    const size_t before = in_.position();
    if (!in_.skip("{")) return std::nullopt;
    const uint32_t least = in_.decimal(kMaxRepeat);
    uint32_t most = least;
    if (least != kNoChar && in_.skip(",")) {
      most = in_.decimal(kMaxRepeat);
      if (most == kNoChar) most = kUnlimited;
    }
    if (least != kNoChar && in_.skip("}")) return std::pair{least, most};
    in_.seek(before);  // a brace that means itself
    return std::nullopt;
  }

  RegexNode atom(int depth) {
    const uint32_t c = in_.next();
    switch (c) {
      case '^':
        return {.kind = Kind::begin};
      case '$':
        return {.kind = Kind::end};
      case '.':
        return of_chars(line_ends().negated());
      case '[':
        return of_chars(char_class());
      case '(':
        return group(depth);
      case '\\':
        return of_chars(escape(false));
      case '*':
      case '+':
      case '?':
        in_.wrong("there is nothing to repeat");
      default:
        return of_chars({{c, c}});
    }
  }

  RegexNode group(int depth) {
    if (in_.skip("?")) {
      if (in_.skip("=") || in_.skip("!") || in_.skip("<=") || in_.skip("<!")) {
        in_.wrong("look-ahead and look-behind are not supported");
      }
      if (in_.skip("<")) {
        while (!in_.at_end() && in_.peek() != '>') in_.next();
        if (!in_.skip(">")) in_.wrong("the name of a group has no end");
      } else if (!in_.skip(":")) {
        in_.wrong("flags and this kind of group are not supported");
      }
    }
    RegexNode inside = alternatives(depth + 1);
    if (!in_.skip(")")) in_.wrong("a ( has no )");
    return inside;
  }

  CharSet char_class() {
    const bool negated = in_.skip("^");
    CharSet set;
    while (!in_.skip("]")) {
      if (in_.at_end()) in_.wrong("a [ has no ]");
      const CharSet first = class_atom();
      const size_t before = in_.position();
      if (!in_.skip("-") || in_.peek() == ']') {
        in_.seek(before);
        set.add(first);
        continue;
      }
      const CharSet last = class_atom();
      const auto is_one = [](const CharSet& s) {
        return s.ranges().size() == 1 && s.ranges()[0].low == s.ranges()[0].high;
      };
      if (is_one(first) && is_one(last)) {
        if (first.ranges()[0].low > last.ranges()[0].low) in_.wrong("a range runs backwards");
        set.add(first.ranges()[0].low, last.ranges()[0].low);
      } else {
        set.add(first);
        set.add(last);
        set.add('-', '-');
      }
    }
    return negated ? set.negated() : set;
  }

  CharSet class_atom() {
    const uint32_t c = in_.next();
    if (c == kNoChar) in_.wrong("a [ has no ]");
    if (c == '\\') return escape(true);
    return {{c, c}};
  }

  uint32_t unicode_escape() {
    if (in_.skip("{")) {
      uint32_t c = 0;
      for (int digits = 0; !in_.skip("}"); ++digits) {
        if (digits == 6) in_.wrong("a character code is too large");
        c = c << 4 | in_.hex(1);
      }
      if (c > CharSet::kLast) in_.wrong("a character code is too large");
      return c;
    }
    const uint32_t c = in_.hex(4);
    const size_t before = in_.position();
    if (c >= 0xD800 && c < 0xDC00 && in_.skip("\\u")) {
      const uint32_t low = in_.hex(4);
      if (low >= 0xDC00 && low < 0xE000) return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
      in_.seek(before);
    }
    return c;
  }

  CharSet escape(bool in_class) {
    const uint32_t c = in_.next();
    const auto one = [](uint32_t is) { return CharSet{{is, is}}; };
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().negated();
      case 'w':
        return word_chars();
      case 'W':
        return word_chars().negated();
      case 's':
        return spaces();
      case 'S':
        return spaces().negated();
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'v':
        return one('\v');
      case 'f':
        return one('\f');
      case '0':
        return one(0);
      case 'x':
        return one(in_.hex(2));
      case 'u':
        return one(unicode_escape());
      case 'c': {
        const uint32_t letter = in_.next();
        if ((letter | 0x20U) < 'a' || (letter | 0x20U) > 'z') in_.wrong("\\c needs a letter");
        return one(letter & 0x1FU);
      }
      case 'b':
        if (in_class) return one('\b');
        [[fallthrough]];
      case 'B':
        in_.wrong("\\b and \\B are not supported");
      case 'p':
      case 'P':
        in_.wrong("\\p is not supported; write the characters as a class");
      case 'k':
        in_.wrong("back-references are not supported");
      case kNoChar:
        in_.wrong("a \\ is the last character");
      default:
        break;
    }
    if (c >= '1' && c <= '9') in_.wrong("back-references are not supported");
    const bool is_letter = c < 0x80 && ((c | 0x20U) >= 'a' && (c | 0x20U) <= 'z');
    if (is_letter) in_.wrong("there is no escape \\{}", static_cast<char>(c));
    return one(c);
  }

  Utf8Reader in_;
  const Limits& limits_;
  int nested_repeats_ = 0;
};

}  // namespace

RegexNode parse_regex_syntax(std::string_view pattern, const Limits& limits) {
  return RegexParser(pattern, limits).run();
}

}  // namespace inferno::grammar
