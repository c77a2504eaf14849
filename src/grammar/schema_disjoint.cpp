// Which values fit, and whether two schemas have a value in common: for enum beside other keywords, and for oneOf,
// which is only enforced where its branches have nothing in common.
#include <algorithm>
#include <cmath>

#include "grammar/schema_writer.h"

namespace inferno::grammar {
namespace {

constexpr int kMaxDepth = 4;  // properties of properties that are looked at to tell branches apart
constexpr size_t kMaxBranches = 256;

size_t length_of(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0U) != 0x80; }));
}

bool is_above(double value, const NumberBound& bound) {
  const auto edge = bound.number->get<double>();
  return value > edge || (value == edge && bound.inclusive);
}
bool is_below(double value, const NumberBound& bound) {
  const auto edge = bound.number->get<double>();
  return value < edge || (value == edge && bound.inclusive);
}

bool is_multiple(double value, double of) {
  const double quotient = value / of;
  return std::abs(quotient - std::round(quotient)) < 1e-9 * std::max(1.0, std::abs(quotient));
}

// Whether all values of the one come before those of the other.
bool ranges_are_apart(const ValueSpec& low, const ValueSpec& high) {
  if (!low.most || !high.least) return false;
  const auto end = low.most->number->get<double>();
  const auto begin = high.least->number->get<double>();
  return end < begin || (end == begin && !(low.most->inclusive && high.least->inclusive));
}

}  // namespace

bool SchemaWriter::value_fits(const SchemaJson& value, const ValueSpec& spec) {
  const uint32_t type = type_of(value);
  if ((spec.types & type) == 0) return false;
  if (type == kString) {
    const auto& text = value.get_ref<const std::string&>();
    const size_t length = length_of(text);
    if (length < spec.min_length || length > spec.max_length) return false;
    const std::string plain = plain_string(text);
    const auto fits = [&](const std::vector<std::string>& patterns, bool whole) {
      return std::ranges::all_of(patterns,
                                 [&](const std::string& p) { return pattern_machine(p, whole).accepts(plain); });
    };
    return fits(spec.patterns, false) && fits(spec.formats, true);
  }
  if (type == kInteger || type == kFraction) {
    const auto number = value.get<double>();
    if (spec.least && !is_above(number, *spec.least)) return false;
    if (spec.most && !is_below(number, *spec.most)) return false;
    return std::ranges::all_of(spec.multiples,
                               [&](const SchemaJson* of) { return is_multiple(number, of->get<double>()); });
  }
  const bool is_limited =
      (type == kArray && (!spec.arrays.empty() || spec.min_items > 0 || spec.max_items < UINT32_MAX)) ||
      (type == kObject && (!spec.objects.empty() || !spec.required.empty() || !spec.names.empty() ||
                           spec.min_properties > 0 || spec.max_properties < UINT32_MAX));
  if (is_limited) {
    fail_usage(
        "the JSON schema: `enum` or `const` at {} has arrays or objects beside keywords for them, which is not "
        "supported",
        document_.path(value));
  }
  return true;
}

bool SchemaWriter::are_disjoint(const ValueSpec& a, const ValueSpec& b, int depth) {
  if ((a.types & b.types) == 0) return true;
  if (a.values || b.values) {
    const ValueSpec& listed = a.values ? a : b;
    const ValueSpec& other = a.values ? b : a;
    return std::ranges::none_of(*listed.values, [&](const SchemaJson* value) {
      if (!value_fits(*value, listed)) return false;
      if (!other.values) return value->is_structured() || value_fits(*value, other);
      return std::ranges::any_of(*other.values,
                                 [&](const SchemaJson* same) { return *same == *value && value_fits(*same, other); });
    });
  }
  const uint32_t common = a.types & b.types;
  if ((common & (kNull | kBoolean)) != 0) return false;
  if ((common & (kInteger | kFraction)) != 0 && !ranges_are_apart(a, b) && !ranges_are_apart(b, a)) return false;
  if ((common & kString) != 0) {
    const bool apart = a.max_length < b.min_length || b.max_length < a.min_length;
    const auto is_plain = [](const ValueSpec& s) { return s.patterns.empty() && s.formats.empty(); };
    if (!apart && (is_plain(a) || is_plain(b))) return false;
    if (!apart && !takes_nothing(intersection(string_machine(a), string_machine(b), limits_))) return false;
  }
  if ((common & kArray) != 0 && !(a.max_items < b.min_items || b.max_items < a.min_items)) return false;
  return (common & kObject) == 0 || objects_are_disjoint(a, b, depth);
}

bool SchemaWriter::objects_are_disjoint(const ValueSpec& a, const ValueSpec& b, int depth) {
  if (a.max_properties < b.min_properties || b.max_properties < a.min_properties) return true;
  if (depth >= kMaxDepth) return false;
  // A property that one of them requires and that is never the same in both.
  const auto tells_apart = [&](const std::string& name) {
    const std::optional<Schemas> in_a = schemas_of_property(name, a);
    const std::optional<Schemas> in_b = schemas_of_property(name, b);
    return !in_a || !in_b || schemas_are_disjoint(*in_a, *in_b, depth + 1);
  };
  return std::ranges::any_of(a.required, tells_apart) || std::ranges::any_of(b.required, tells_apart);
}

bool SchemaWriter::schemas_are_disjoint(const Schemas& a, const Schemas& b, int depth) {
  const std::vector<Alternative> in_a = alternatives_of(a, document_, limits_);
  const std::vector<Alternative> in_b = alternatives_of(b, document_, limits_);
  if (in_a.size() * in_b.size() > kMaxBranches) return false;
  for (const Alternative& one : in_a) {
    for (const Alternative& other : in_b) {
      if (!are_disjoint(merge_schemas(one.schemas, document_), merge_schemas(other.schemas, document_), depth))
        return false;
    }
  }
  return true;
}

void SchemaWriter::check_one_of(const std::vector<Alternative>& alternatives, const std::vector<ValueSpec>& specs) {
  // The first oneOf in which two alternatives come from different branches decides whether they have to differ.
  const auto differs = [](const Alternative& a, const Alternative& b) -> const SchemaJson* {
    for (const auto& [list, branch] : a.branches) {
      for (const auto& [other, other_branch] : b.branches) {
        if (list == other && branch != other_branch) return list;
      }
    }
    return nullptr;
  };
  const bool any = std::ranges::any_of(alternatives, [](const Alternative& a) { return !a.branches.empty(); });
  if (!any) return;
  if (alternatives.size() > kMaxBranches) {
    const auto chosen = std::ranges::find_if(alternatives, [](const Alternative& a) { return !a.branches.empty(); });
    fail_usage("{} `oneOf` at {} has more than {} branches", kSchemaError, document_.path(*chosen->branches[0].first),
               kMaxBranches);
  }
  for (size_t i = 0; i < alternatives.size(); ++i) {
    for (size_t j = i + 1; j < alternatives.size(); ++j) {
      const SchemaJson* list = differs(alternatives[i], alternatives[j]);
      if (list == nullptr || are_disjoint(specs[i], specs[j], 0)) continue;
      fail_usage(
          "the JSON schema: `oneOf` at {} has branches that may fit the same value, which is not supported; use "
          "`anyOf`, or a required property that differs",
          document_.path(*list));
    }
  }
}

}  // namespace inferno::grammar
