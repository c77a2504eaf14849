// Methods of strings that give a string.
#include <fmt/core.h>

#include <algorithm>

#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/format.h"
#include "template/operators.h"
#include "template/text_ops.h"
#include "template/unicode.h"
#include "template/value_text.h"

namespace inferno::jinja {
namespace {

// A string of the same kind as self, marked as safe or not.
Value made(Evaluator& evaluator, const Value& self, Text text) {
  return evaluator.run().text(std::move(text), self.is_markup());
}

template <Text (*Convert)(const Text&)>
Value convert(Evaluator& evaluator, const Value& self, const Parameters&) {
  evaluator.run().charge(self.as_text().size());
  return made(evaluator, self, Convert(self.as_text()));
}

template <Side Where>
Value strip_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  std::optional<std::string_view> chars;
  if (!parameters.is_none(0)) chars = parameters.string(0)->as_view();
  evaluator.run().step(self.weight() * (chars ? 1 + chars->size() : 1));
  return made(evaluator, self, strip(self.as_text(), chars, Where));
}

Value replace_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  const Value& old = *parameters.string(0);
  const Value& fresh = *parameters.string(1);
  const bool escapes = self.is_markup() && !fresh.is_markup();
  const Text with = escapes ? escape_html(fresh.as_text()) : fresh.as_text();
  evaluator.run().charge(count_matches(self.as_view(), old.as_view()) * (with.size() + 8));
  return made(evaluator, self, replace(self.as_text(), old.as_view(), with, parameters.integer(2, -1)));
}

Value join_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  if (!is_iterable(parameters.at(0))) throw Failure("join() needs something to iterate over");
  Text out;
  bool first = true;
  for (const Value& item : iterate(run, parameters.at(0))) {
    Value text = item;
    if (self.is_markup()) {
      text = as_string(run, item);
    } else if (!item.is(Kind::string)) {
      throw Failure(fmt::format("join() needs strings, not a {}", item.type_name()));
    }
    run.charge(self.as_text().size() + text.as_text().size());
    if (!first) out.append(self.as_text());
    first = false;
    out.append(self.is_markup() && !text.is_markup() ? escape_html(text.as_text()) : text.as_text());
  }
  return made(evaluator, self, std::move(out));
}

Value format_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  return format_braces(evaluator, self, parameters.given());
}

Value format_map_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  if (!parameters.at(0).is(Kind::dict)) throw Failure("format_map() needs a dict");
  CallArguments arguments;
  for (const auto& [key, value] : parameters.at(0).as_dict().entries) {
    if (key.is(Kind::string)) arguments.named.emplace_back(key.as_view(), value);
  }
  return format_braces(evaluator, self, arguments);
}

Value pad_method(Evaluator& evaluator, const Value& self, const Parameters& parameters, char align) {
  FormatSpec spec;
  spec.width = parameters.integer(0, 0);
  spec.align = align;
  if (const Value* fill = parameters.string(1)) {
    if (count_characters(fill->as_view()) != 1) throw Failure("the fill character must be one character");
    spec.fill = fill->as_text();
  }
  return made(evaluator, self, pad(evaluator.run(), self.as_text(), spec, align));
}

Value center_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  // Python puts the odd one to the left when the width is odd.
  const auto size = static_cast<int64_t>(count_characters(self.as_view()));
  const int64_t width = parameters.integer(0, 0);
  if (width <= size) return self;
  const int64_t missing = width - size;
  const int64_t left = missing / 2 + (missing & width & 1);
  FormatSpec spec;
  if (const Value* fill = parameters.string(1)) {
    if (count_characters(fill->as_view()) != 1) throw Failure("the fill character must be one character");
    spec.fill = fill->as_text();
  }
  spec.width = size + left;
  const Text half = pad(evaluator.run(), self.as_text(), spec, '>');
  spec.width = width;
  return made(evaluator, self, pad(evaluator.run(), half, spec, '<'));
}

Value ljust_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  return pad_method(evaluator, self, parameters, '<');
}

Value rjust_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  return pad_method(evaluator, self, parameters, '>');
}

Value zfill_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  const Text& text = self.as_text();
  const size_t sign = text.view().starts_with('-') || text.view().starts_with('+') ? 1 : 0;
  FormatSpec spec;
  spec.fill = Text("0", true);
  spec.width = std::max<int64_t>(parameters.integer(0, 0), 0) - static_cast<int64_t>(sign);
  Text out = text.slice(0, sign);
  out.append(pad(evaluator.run(), text.slice(sign, text.size()), spec, '>'));
  return made(evaluator, self, std::move(out));
}

Value remove_prefix(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  const std::string_view part = parameters.string(0)->as_view();
  const Text& text = self.as_text();
  return made(evaluator, self, text.slice(text.view().starts_with(part) ? part.size() : 0, text.size()));
}

Value remove_suffix(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  const std::string_view part = parameters.string(0)->as_view();
  const Text& text = self.as_text();
  return made(evaluator, self, text.slice(0, text.size() - (text.view().ends_with(part) ? part.size() : 0)));
}

Value expand_tabs(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  const int64_t width = parameters.integer(0, 8);
  const Text& text = self.as_text();
  Text out;
  int64_t column = 0;
  for (size_t i = 0; i < text.size();) {
    const Character c = character_at(text.view(), i);
    if (c.code == '\t') {
      const int64_t spaces = width > 0 ? width - column % width : 0;
      evaluator.run().charge(static_cast<uint64_t>(spaces));
      out.append(std::string(static_cast<size_t>(spaces), ' '), text.is_control(i));
      column += spaces;
    } else {
      out.append(text, i, i + c.size);
      column = c.code == '\n' || c.code == '\r' ? 0 : column + 1;
    }
    i += c.size;
  }
  return made(evaluator, self, std::move(out));
}

constexpr BuiltinEntry kMethods[] = {
    {"upper", "", convert<to_upper>},
    {"lower", "", convert<to_lower>},
    {"swapcase", "", convert<to_swapped>},
    {"capitalize", "", convert<to_capitalized>},
    {"title", "", convert<to_title>},
    {"strip", "-chars?", strip_method<Side::both>},
    {"lstrip", "-chars?", strip_method<Side::left>},
    {"rstrip", "-chars?", strip_method<Side::right>},
    {"replace", "-old -new -count?", replace_method},
    {"join", "-iterable", join_method},
    {"format", "*", format_method},
    {"format_map", "-mapping", format_map_method},
    {"center", "-width -fillchar?", center_method},
    {"ljust", "-width -fillchar?", ljust_method},
    {"rjust", "-width -fillchar?", rjust_method},
    {"zfill", "-width", zfill_method},
    {"removeprefix", "-prefix", remove_prefix},
    {"removesuffix", "-suffix", remove_suffix},
    {"expandtabs", "tabsize?", expand_tabs},
};

}  // namespace

std::span<const BuiltinEntry> string_methods() {
  return kMethods;
}

}  // namespace inferno::jinja
