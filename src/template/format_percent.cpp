#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "template/format.h"
#include "template/unicode.h"
#include "template/value_text.h"

namespace inferno::jinja {
namespace {

class Percent {
 public:
  Percent(Run& run, const Value& format, const Value& arguments)
      : run_(run), format_(format.as_text()), markup_(format.is_markup()), arguments_(arguments) {
    is_tuple_ = arguments.is(Kind::sequence) && arguments.as_sequence().is_tuple();
  }

  Value run() {
    const std::string_view text = format_.view();
    while (at_ < text.size()) {
      const size_t mark = std::min(text.find('%', at_), text.size());
      out_.append(format_, at_, mark);
      at_ = mark;
      if (at_ == text.size()) break;
      ++at_;
      read_conversion();
    }
    const bool mapping =
        arguments_.is(Kind::dict) || is_undefined(arguments_) || (arguments_.is(Kind::sequence) && !is_tuple_);
    const size_t given = is_tuple_ ? arguments_.as_sequence().items.size() : 1;
    if (!mapping && used_ < given) throw Failure("not all arguments of a % format were used");
    return run_.text(std::move(out_), markup_);
  }

 private:
  [[nodiscard]] char peek() const {
    if (at_ >= format_.size()) throw Failure("a % format is cut");
    return format_.view()[at_];
  }

  Value next_argument() {
    if (!is_tuple_) {
      if (used_++ > 0) throw Failure("a % format needs more arguments");
      return arguments_;
    }
    const Sequence& sequence = arguments_.as_sequence();
    if (used_ >= sequence.items.size()) throw Failure("a % format needs more arguments");
    return sequence.items[used_++];
  }

  int64_t read_number() {
    if (peek() == '*') {
      ++at_;
      const Value value = next_argument();
      if (!value.is_integral()) throw Failure("* in a % format needs an integer");
      return value.as_integer();
    }
    int64_t number = 0;
    while (peek() >= '0' && peek() <= '9') {
      number = std::min<int64_t>(number * 10 + (peek() - '0'), INT32_MAX);
      ++at_;
    }
    return number;
  }

  void read_conversion() {
    FormatSpec spec;
    Value keyed;
    bool has_key = false;
    if (peek() == '(') {
      keyed = read_key();
      has_key = true;
    }
    bool zero = false;
    for (;; ++at_) {
      const char c = peek();
      if (c == '-') {
        spec.align = '<';
      } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
        spec.sign = c;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c == '0') {
        zero = true;
      } else if (c != ' ') {
        break;
      }
    }
    spec.width = read_number();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = spec.width == INT64_MIN ? INT64_MAX : -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(read_number(), 0);
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    spec.type = peek();
    ++at_;
    if (spec.type == '%') {
      out_.append("%", true);
      return;
    }
    if (spec.align == 0) spec.align = '>';
    const Value value = has_key ? keyed : next_argument();
    write(value, spec, zero && spec.align != '<');
  }

  Value read_key() {
    if (!arguments_.is(Kind::dict)) throw Failure("a % format with names needs a dict");
    int open = 1;
    const size_t begin = ++at_;
    while (open > 0) {
      if (peek() == '(') ++open;
      if (peek() == ')') --open;
      ++at_;
    }
    const Value* found = arguments_.as_dict().find(format_.view().substr(begin, at_ - 1 - begin));
    if (found == nullptr) throw Failure("a % format names a key that is not there");
    used_ = 1;
    return *found;
  }

  void write(const Value& value, FormatSpec& spec, bool zero) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        Text text = spec.type == 's' ? to_text(run_, value) : to_repr(run_, value);
        if (markup_ && !value.is_markup()) text = escape_html(text);
        out_.append(format_string(run_, text, spec));
        return;
      }
      case 'c':
        write_character(value, spec);
        return;
      case 'd':
      case 'i':
      case 'u':
        if (value.is(Kind::floating)) {
          write_integer(Value::integer(truncate(value.as_double()), value.is_user()), spec, zero);
          return;
        }
        [[fallthrough]];
      case 'o':
      case 'x':
      case 'X':
        if (!value.is_integral())
          throw Failure(fmt::format("%{} needs an integer, not a {}", spec.type, value.type_name()));
        write_integer(value, spec, zero);
        return;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number())
          throw Failure(fmt::format("%{} needs a number, not a {}", spec.type, value.type_name()));
        if (zero) set_zero(spec);
        out_.append(format_double(run_, value, spec));
        return;
      default:
        throw Failure("a % format has an unknown conversion");
    }
  }

  static int64_t truncate(double value) {
    if (!(std::fabs(value) < 9.2e18)) throw Failure("a number is too large for %d");
    return static_cast<int64_t>(value);
  }

  static void set_zero(FormatSpec& spec) {
    spec.fill = Text("0", true);
    spec.align = '=';
  }

  void write_integer(const Value& value, FormatSpec& spec, bool zero) {
    if (zero) set_zero(spec);
    out_.append(format_integer(run_, value, spec));
  }

  void write_character(const Value& value, const FormatSpec& spec) {
    if (value.is(Kind::string) && count_characters(value.as_view()) == 1) {
      out_.append(pad(run_, value.as_text(), spec, '>'));
      return;
    }
    if (!value.is_integral()) throw Failure("%c needs a character");
    const int64_t code = value.as_integer();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) throw Failure("%c needs a character");
    std::string bytes;
    append_character(bytes, static_cast<char32_t>(code));
    out_.append(pad(run_, Text(bytes, !value.is_user()), spec, '>'));
  }

  Run& run_;
  const Text& format_;
  bool markup_;
  const Value& arguments_;
  bool is_tuple_ = false;
  size_t at_ = 0;
  size_t used_ = 0;
  Text out_;
};

}  // namespace

Value format_percent(Run& run, const Value& format, const Value& arguments) {
  return Percent(run, format, arguments).run();
}

}  // namespace inferno::jinja
