#include "template/format.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "template/unicode.h"
#include "template/value_text.h"

namespace inferno::jinja {
namespace {

constexpr int64_t kMaxPrecision = 1000;

// Sign and prefix first, then digits: zeros go between them.
struct Digits {
  std::string prefix;
  std::string text;
};

std::string grouped(const std::string& digits, char mark, size_t every) {
  const size_t end = digits.find_first_not_of("0123456789abcdefABCDEF");
  std::string out = digits;
  for (size_t i = end == std::string::npos ? digits.size() : end; i > every; i -= every) {
    out.insert(i - every, 1, mark);
  }
  return out;
}

Text assemble(Run& run, Digits digits, const FormatSpec& spec, bool user) {
  if (spec.group != 0) {
    const bool decimal = spec.type != 'x' && spec.type != 'X' && spec.type != 'o' && spec.type != 'b';
    digits.text = grouped(digits.text, spec.group, decimal ? 3 : 4);
  }
  if (spec.align != '=') return pad(run, Text(digits.prefix + digits.text, !user), spec, '>');
  Text out(digits.prefix, !user);
  FormatSpec inner = spec;
  inner.width -= static_cast<int64_t>(digits.prefix.size());
  inner.align = '>';
  out.append(pad(run, Text(digits.text, !user), inner, '>'));
  return out;
}

std::string sign_of(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

void check_precision(int64_t precision) {
  if (precision > kMaxPrecision) throw Failure(fmt::format("a precision is above {}", kMaxPrecision));
}

}  // namespace

Text pad(Run& run, const Text& text, const FormatSpec& spec, char default_align) {
  const auto size = static_cast<int64_t>(count_characters(text.view()));
  if (spec.width <= size) return text;
  const auto missing = static_cast<size_t>(spec.width - size);
  run.charge(missing * spec.fill.size());
  const char align = spec.align == 0 ? default_align : spec.align;
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  Text out;
  for (size_t i = 0; i < left; ++i) out.append(spec.fill);
  out.append(text);
  for (size_t i = left; i < missing; ++i) out.append(spec.fill);
  return out;
}

Text format_string(Run& run, const Text& text, const FormatSpec& spec) {
  if (spec.precision < 0) return pad(run, text, spec, '<');
  return pad(run, text.slice(0, offset_of(text.view(), static_cast<size_t>(spec.precision))), spec, '<');
}

Text format_integer(Run& run, const Value& value, const FormatSpec& spec) {
  const int64_t number = value.as_integer();
  const uint64_t magnitude = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  Digits digits{sign_of(number < 0, spec.sign), {}};
  const auto add_prefix = [&](std::string_view prefix) {
    if (spec.alternate) digits.prefix += prefix;
  };
  switch (spec.type) {
    case 'x':
      add_prefix("0x");
      digits.text = fmt::format("{:x}", magnitude);
      break;
    case 'X':
      add_prefix("0X");
      digits.text = fmt::format("{:X}", magnitude);
      break;
    case 'o':
      add_prefix("0o");
      digits.text = fmt::format("{:o}", magnitude);
      break;
    case 'b':
      add_prefix("0b");
      digits.text = fmt::format("{:b}", magnitude);
      break;
    default:
      digits.text = std::to_string(magnitude);
  }
  check_precision(spec.precision);
  if (spec.precision > static_cast<int64_t>(digits.text.size())) {
    digits.text.insert(0, static_cast<size_t>(spec.precision) - digits.text.size(), '0');
  }
  return assemble(run, std::move(digits), spec, value.is_user());
}

Text format_double(Run& run, const Value& value, const FormatSpec& spec) {
  double number = value.as_double();
  check_precision(spec.precision);
  const bool negative = std::signbit(number) && !std::isnan(number);
  Digits digits{sign_of(negative, spec.sign), {}};
  number = std::fabs(number);
  const char type = spec.type == '%' || spec.type == 0 ? 'f' : spec.type == 'n' ? 'g' : spec.type;
  if (spec.type == '%') number *= 100;
  if (std::isnan(number) || std::isinf(number)) {
    digits.text = std::isnan(number) ? "nan" : "inf";
    if (type >= 'A' && type <= 'Z') digits.text = std::isnan(number) ? "NAN" : "INF";
  } else if (spec.type == 0 && spec.precision < 0) {
    digits.text = format_float(number);
  } else {
    const char shown = spec.type == 0 ? 'g' : type;
    const std::string format = fmt::format("%{}.*{}", spec.alternate ? "#" : "", shown);
    const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
    std::string buffer(static_cast<size_t>(precision) + 400, '\0');
    const int size = std::snprintf(buffer.data(), buffer.size(), format.c_str(), precision, number);
    buffer.resize(static_cast<size_t>(std::max(size, 0)));
    digits.text = std::move(buffer);
    const bool bare = spec.type == 0 && digits.text.find_first_of(".e") == std::string::npos;
    if (bare) digits.text += ".0";
  }
  if (spec.type == '%') digits.text += '%';
  return assemble(run, std::move(digits), spec, value.is_user());
}

}  // namespace inferno::jinja
