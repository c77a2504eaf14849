#include "template/value_text.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "template/object.h"
#include "template/unicode.h"

namespace inferno::jinja {
namespace {

class Writer {
 public:
  explicit Writer(Run& run) : run_(run) {}

  void write(const Value& value, bool as_repr) {
    const Run::Nested nested(run_);
    run_.step();
    switch (value.kind()) {
      case Kind::undefined:
        return put(as_repr ? "Undefined" : "");
      case Kind::none:
        return put("None");
      case Kind::boolean:
        return out_.append(value.as_boolean() ? "True" : "False", !value.is_user());
      case Kind::integer:
        return out_.append(std::to_string(value.as_integer()), !value.is_user());
      case Kind::floating:
        return out_.append(format_float(value.as_double()), !value.is_user());
      case Kind::string:
        return as_repr ? write_quoted(value) : write_string(value.as_text());
      case Kind::sequence:
        return write_sequence(value.as_sequence());
      case Kind::dict:
        return write_dict(value.as_dict());
      case Kind::object:
        return write_object(value.as_object());
    }
  }
  [[nodiscard]] Text take() { return std::move(out_); }

 private:
  void put(std::string_view text) { out_.append(text, true); }

  void write_string(const Text& text) {
    run_.charge(text.size());
    out_.append(text);
  }

  void write_quoted(const Value& value) {
    const Text& text = value.as_text();
    run_.charge(text.size());
    const bool single = text.view().find('\'') != std::string_view::npos;
    const char quote = single && text.view().find('"') == std::string_view::npos ? '"' : '\'';
    if (value.is_markup()) put("Markup(");
    put({&quote, 1});
    text.each_run(0, text.size(), [&](std::string_view run, bool control) {
      std::string escaped;
      for (size_t i = 0; i < run.size();) {
        const Character c = character_at(run, i);
        append_escaped(escaped, run.substr(i, c.size), c.code, quote);
        i += c.size;
      }
      out_.append(escaped, control);
    });
    put({&quote, 1});
    if (value.is_markup()) put(")");
  }

  static void append_escaped(std::string& out, std::string_view bytes, char32_t code, char quote) {
    const auto number = static_cast<uint32_t>(code);
    if (code == static_cast<unsigned char>(quote) || code == '\\') {
      out += '\\';
      out += bytes;
    } else if (code == '\n' || code == '\r' || code == '\t') {
      out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
    } else if (code >= kInvalid || is_printable(code)) {
      out += bytes;
    } else if (code < 0x100) {
      out += fmt::format("\\x{:02x}", number);
    } else {
      out += code < 0x10000 ? fmt::format("\\u{:04x}", number) : fmt::format("\\U{:08x}", number);
    }
  }

  void write_sequence(const Sequence& sequence) {
    using Form = Sequence::Form;
    switch (sequence.form) {
      case Form::list:
        return write_items(sequence, "[", "]");
      case Form::tuple:
      case Form::group:
        return write_items(sequence, "(", sequence.items.size() == 1 ? ",)" : ")");
      case Form::keys:
        return write_items(sequence, "dict_keys([", "])");
      case Form::values:
        return write_items(sequence, "dict_values([", "])");
      case Form::items:
        return write_items(sequence, "dict_items([", "])");
      case Form::generator:
        return put("<generator object>");
      case Form::range:
        return write_range(sequence);
    }
  }

  void write_range(const Sequence& sequence) {
    const std::string step = sequence.step == 1 ? "" : fmt::format(", {}", sequence.step);
    put(fmt::format("range({}, {}{})", sequence.begin, sequence.end, step));
  }

  void write_items(const Sequence& sequence, std::string_view open, std::string_view close) {
    put(open);
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) put(", ");
      write(sequence.items[i], true);
    }
    put(close);
  }

  void write_dict(const Dict& dict) {
    put("{");
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) put(", ");
      write(dict.entries[i].first, true);
      put(": ");
      write(dict.entries[i].second, true);
    }
    put("}");
  }

  void write_object(const Object& object) {
    if (object.type() == Object::Type::name_space) {
      put("<Namespace ");
      write_dict(static_cast<const NamespaceObject&>(object).attributes);
      put(">");
    } else {
      put("<object>");
    }
  }

  Run& run_;
  Text out_;
};

}  // namespace

Text to_text(Run& run, const Value& value) {
  if (value.is(Kind::string)) return value.as_text();
  Writer writer(run);
  writer.write(value, false);
  return writer.take();
}

Text to_repr(Run& run, const Value& value) {
  Writer writer(run);
  writer.write(value, true);
  return writer.take();
}

std::string format_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The fewest digits that read back as the value. (macOS has std::to_chars of floats only from 13.4 on.)
  std::array<char, 40> buffer{};
  for (int decimals = 0; decimals < 17; ++decimals) {
    std::snprintf(buffer.data(), buffer.size(), "%.*e", decimals, value);
    if (std::strtod(buffer.data(), nullptr) == value) break;
  }
  const std::string_view shortest(buffer.data());
  const size_t mark = shortest.find('e');
  const int exponent = std::atoi(shortest.data() + mark + 1);
  const std::string sign = shortest.starts_with('-') ? "-" : "";
  std::string digits;
  for (const char c : shortest.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}{}{}{}e{}{:02}", sign, digits[0], digits.size() > 1 ? "." : "", digits.substr(1),
                       exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return fmt::format("{}0.{:0>{}}{}", sign, "", -exponent - 1, digits);
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return fmt::format("{}{:0<{}}.0", sign, digits, whole);
  return fmt::format("{}{}.{}", sign, digits.substr(0, whole), digits.substr(whole));
}

Text escape_html(const Text& text) {
  Text out;
  text.each_run(0, text.size(), [&](std::string_view run, bool control) {
    std::string escaped;
    for (const char c : run) {
      switch (c) {
        case '&':
          escaped += "&amp;";
          break;
        case '<':
          escaped += "&lt;";
          break;
        case '>':
          escaped += "&gt;";
          break;
        case '\'':
          escaped += "&#39;";
          break;
        case '"':
          escaped += "&#34;";
          break;
        default:
          escaped += c;
      }
    }
    out.append(escaped, control);
  });
  return out;
}

}  // namespace inferno::jinja
