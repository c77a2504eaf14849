#include "grammar/listed_values.h"

#include <algorithm>

#include "grammar/number_text.h"

namespace inferno::grammar {
namespace {

// Texts of one value: four numbers in both forms.
constexpr size_t kMaxTexts = 16;
// Digits of whole numbers that are written in both forms: all that 64 bits have.
constexpr size_t kMaxDigits = 20;

using Texts = std::vector<std::string>;

Texts number_texts(const SchemaJson& number, bool fractions) {
  const Decimal decimal = decimal_of(number);
  if (!decimal.fraction.empty() || decimal.whole.size() > kMaxDigits) return {number.dump()};
  const std::string whole = (decimal.negative ? "-" : "") + decimal.whole;
  if (!fractions && !number.is_number_float()) return {whole};
  return {whole, whole + ".0"};
}

// Every beginning with every end.
Texts joined(const Texts& begins, const std::string& between, const Texts& ends) {
  Texts all;
  for (const std::string& begin : begins) {
    for (const std::string& end : ends) {
      all.push_back(begin);
      all.back().append(between).append(end);
    }
  }
  return all;
}

// Empty: too many. Depth is limited by the parser.
Texts texts_of(const SchemaJson& value, bool fractions) {
  if (value.is_number()) return number_texts(value, fractions);
  if (!value.is_structured()) return {value.dump()};
  Texts texts = {value.is_array() ? "[" : "{"};
  bool first = true;
  for (const auto& item : value.items()) {
    std::string before = first ? "" : ",";
    if (value.is_object()) before.append(SchemaJson(item.key()).dump()).append(":");
    texts = joined(texts, before, texts_of(item.value(), true));
    if (texts.empty() || texts.size() > kMaxTexts) return {};
    first = false;
  }
  return joined(texts, value.is_array() ? "]" : "}", {""});
}

}  // namespace

std::vector<std::string> listed_texts(const SchemaJson& value, bool fractions) {
  Texts texts = texts_of(value, fractions);
  if (texts.empty()) texts.push_back(value.dump());
  return texts;
}

}  // namespace inferno::grammar
