// Arrays and objects of a JSON schema.
//
// Properties come in the order in which the schema lists them, then others. An object is built from its end: for every
// listed property and every count of those written before, what may follow.
#include <algorithm>
#include <set>

#include "grammar/schema_writer.h"

namespace inferno::grammar {

// ---- arrays

ExprId SchemaWriter::array(const ValueSpec& spec) {
  if (spec.arrays.empty() && spec.min_items == 0 && spec.max_items >= kEndless) return text_.any_array();
  size_t prefix = 0;
  Schemas rest;
  for (const ArrayPart& part : spec.arrays) {
    if (part.prefix != nullptr) prefix = std::max(prefix, part.prefix->size());
    if (part.rest != nullptr) rest.push_back(part.rest);
  }
  const auto item = [&](size_t i) {
    if (i >= prefix) return value(rest);
    Schemas schemas;
    for (const ArrayPart& part : spec.arrays) {
      const bool listed = part.prefix != nullptr && i < part.prefix->size();
      if (listed) schemas.push_back(&(*part.prefix)[i]);
      if (!listed && part.rest != nullptr) schemas.push_back(part.rest);
    }
    return value(schemas);
  };
  const bool endless = spec.max_items >= kEndless;
  const size_t last = endless ? std::max<size_t>(prefix, spec.min_items) : spec.max_items;
  if (last > limits_.nfa_states) fail_usage("an array of {} items is too long", last);

  Nfa nfa(pool_, limits_);
  const ExprId end = pool_.literal("]");
  const ExprId spaced_end = pool_.sequence({text_.space(), end});
  const ExprId comma = text_.comma();
  const ExprId rest_item = value(rest);
  // after: the state after `count` items.
  uint32_t after = 0;
  for (size_t count = last + 1; count-- > 0;) {
    const uint32_t close =
        count >= spec.min_items ? nfa.build(count == 0 ? end : spaced_end, Nfa::kFinal) : nfa.dead_end();
    const auto one_more = [&](uint32_t next) {
      const ExprId fresh = count >= prefix ? rest_item : item(count);
      return nfa.build(count == 0 ? fresh : pool_.sequence({comma, fresh}), next);
    };
    if (count < last) {
      after = nfa.split(one_more(after), close);
    } else if (!endless) {
      after = close;
    } else if (count > 0) {
      after = nfa.open_split();
      nfa.close_split(after, one_more(after), close);
    } else {
      const uint32_t loop = nfa.open_split();
      const uint32_t more = nfa.build(pool_.sequence({comma, rest_item}), loop);
      nfa.close_split(loop, more, nfa.build(spaced_end, Nfa::kFinal));
      after = nfa.split(one_more(loop), close);
    }
  }
  const uint32_t begin = nfa.build(pool_.sequence({pool_.literal("["), text_.space()}), after);
  return pool_.call(rules_.define("array", nfa.machine(begin)));
}

// ---- objects

std::optional<Schemas> SchemaWriter::schemas_of_property(const std::string& name, const ValueSpec& spec) {
  Schemas schemas;
  const std::string plain = plain_string(name);
  for (const ObjectPart& part : spec.objects) {
    bool listed = false;
    if (part.properties != nullptr) {
      const auto member = part.properties->find(name);
      if (member != part.properties->end()) {
        schemas.push_back(&*member);
        listed = true;
      }
    }
    if (part.patterns != nullptr) {
      for (const auto& pattern : part.patterns->items()) {
        if (!pattern_machine(pattern.key(), false).accepts(plain)) continue;
        schemas.push_back(&pattern.value());
        listed = true;
      }
    }
    if (!listed && part.additional != nullptr) schemas.push_back(part.additional);
  }
  if (takes_nothing(schemas) || !name_fits(name, spec)) return std::nullopt;
  return schemas;
}

bool SchemaWriter::name_fits(const std::string& name, const ValueSpec& spec) {
  const SchemaJson value = name;
  return std::ranges::all_of(spec.names, [&](const SchemaJson* schema) {
    const std::vector<Alternative> ways = alternatives_of({schema}, document_, limits_);
    return std::ranges::any_of(
        ways, [&](const Alternative& way) { return value_fits(value, merge_schemas(way.schemas, document_)); });
  });
}

std::optional<std::vector<SchemaWriter::Property>> SchemaWriter::properties_of(const ValueSpec& spec) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const ObjectPart& part : spec.objects) {
    if (part.properties == nullptr) continue;
    for (const auto& member : part.properties->items()) {
      if (seen.insert(member.key()).second) names.push_back(member.key());
    }
  }
  const std::set<std::string> required(spec.required.begin(), spec.required.end());
  for (const std::string& name : spec.required) {
    if (seen.insert(name).second) names.push_back(name);
  }
  std::vector<Property> properties;
  for (std::string& name : names) {
    std::optional<Schemas> schemas = schemas_of_property(name, spec);
    const bool needed = required.contains(name);
    if (!schemas && needed) return std::nullopt;
    // One that cannot be there is listed all the same: others must not have its name.
    properties.push_back({std::move(name), schemas ? std::move(*schemas) : Schemas{}, needed});
    if (!schemas) forbidden_.insert(properties.back().name);
  }
  return properties;
}

std::vector<SchemaWriter::OtherNames> SchemaWriter::other_names(const ValueSpec& spec,
                                                                const std::vector<Property>& listed) {
  // Machines are only needed where names are told apart.
  std::optional<Machine> all;
  if (!spec.names.empty() || !listed.empty() ||
      std::ranges::any_of(spec.objects, [](const ObjectPart& part) { return part.patterns != nullptr; })) {
    all = string_machine({});
    for (const SchemaJson* schema : spec.names) {
      const std::vector<Alternative> ways = alternatives_of({schema}, document_, limits_);
      if (ways.size() != 1)
        document_.fail_at(*spec.object_keyword, "propertyNames", "with alternatives is not supported");
      const ValueSpec name = merge_schemas(ways[0].schemas, document_);
      if (name.values)
        document_.fail_at(*spec.object_keyword, "propertyNames", "with `enum` or `const` is not supported");
      all =
          (name.types & kString) != 0 ? intersection(*all, string_machine(name), limits_) : words_machine({}, limits_);
    }
    std::vector<std::string> words;
    for (const Property& property : listed) words.push_back(plain_string(property.name));
    all = difference(*all, words_machine(std::move(words), limits_), limits_);
  }
  std::vector<OtherNames> others;
  std::vector<std::pair<std::string, Machine>> patterns;
  for (const ObjectPart& part : spec.objects) {
    if (part.patterns == nullptr) continue;
    for (const auto& pattern : part.patterns->items()) {
      Machine names = intersection(*all, pattern_machine(pattern.key(), false), limits_);
      for (const auto& [other, machine] : patterns) {
        if (other == pattern.key() || takes_nothing(intersection(names, machine, limits_))) continue;
        document_.fail_at(*spec.object_keyword, "patternProperties",
                          "with patterns that fit the same name is not supported");
      }
      Schemas schemas;
      for (const ObjectPart& one : spec.objects) {
        const bool has_it = one.patterns != nullptr && one.patterns->contains(pattern.key());
        if (has_it) schemas.push_back(&(*one.patterns)[pattern.key()]);
        if (!has_it && one.additional != nullptr) schemas.push_back(one.additional);
      }
      const bool is_new =
          std::ranges::none_of(patterns, [&](const auto& known) { return known.first == pattern.key(); });
      if (is_new && !takes_nothing(schemas)) others.push_back({names, std::move(schemas)});
      patterns.emplace_back(pattern.key(), std::move(names));
    }
  }
  for (const auto& [pattern, machine] : patterns) all = difference(*all, machine, limits_);
  Schemas schemas;
  for (const ObjectPart& part : spec.objects) {
    if (part.additional != nullptr) schemas.push_back(part.additional);
  }
  if (!takes_nothing(schemas)) others.push_back({std::move(all), std::move(schemas)});
  return others;
}

ExprId SchemaWriter::object(const ValueSpec& spec) {
  const bool is_any = spec.objects.empty() && spec.required.empty() && spec.names.empty() && spec.min_properties == 0 &&
                      spec.max_properties >= kEndless;
  if (is_any) return text_.any_object();
  forbidden_.clear();
  std::optional<std::vector<Property>> listed = properties_of(spec);
  if (!listed) return pool_.never();
  const std::vector<OtherNames> others = other_names(spec, *listed);
  std::erase_if(*listed, [&](const Property& property) { return forbidden_.contains(property.name); });
  return object_rule(spec, *listed, others);
}

ExprId SchemaWriter::object_rule(const ValueSpec& spec, const std::vector<Property>& listed,
                                 const std::vector<OtherNames>& others) {
  const bool endless = spec.max_properties >= kEndless;
  // Counts beyond the last one mean the same.
  const size_t last = std::max<size_t>({1, spec.min_properties, endless ? 0 : spec.max_properties});
  if ((listed.size() + 1) * last > limits_.nfa_states) {
    fail_usage("an object of {} properties is too large", last);
  }
  const auto may_have_more = [&](size_t count) { return endless || count < spec.max_properties; };
  Nfa nfa(pool_, limits_);
  const ExprId comma = text_.comma();
  const ExprId colon = text_.colon();
  const ExprId end = pool_.literal("}");
  const ExprId spaced_end = pool_.sequence({text_.space(), end});
  const auto member = [&](size_t count, ExprId name, ExprId content, uint32_t next) {
    return nfa.build(
        count == 0 ? pool_.sequence({name, colon, content}) : pool_.sequence({comma, name, colon, content}), next);
  };

  std::vector<std::pair<ExprId, ExprId>> other_members;
  for (const OtherNames& other : others) {
    const ExprId name =
        other.names ? pool_.call(rules_.define("name", enclosed(*other.names, '"'))) : text_.any_string();
    other_members.emplace_back(name, value(other.schemas));
  }
  // [count]: the state in which so many properties were written and only others, or the end, may follow.
  std::vector<uint32_t> row(last + 1);
  for (size_t count = last + 1; count-- > 0;) {
    const bool ends = count >= spec.min_properties && (endless || count <= spec.max_properties);
    uint32_t state = ends ? nfa.build(count == 0 ? end : spaced_end, Nfa::kFinal) : nfa.dead_end();
    if (may_have_more(count) && !other_members.empty()) {
      const bool loops = count == last;
      const uint32_t entry = nfa.open_split();
      const uint32_t next = loops ? entry : row[count + 1];
      for (const auto& [name, content] : other_members) state = nfa.split(member(count, name, content, next), state);
      nfa.close_split(entry, state, state);
      state = entry;
    }
    row[count] = state;
  }
  for (size_t i = listed.size(); i-- > 0;) {
    const Property& property = listed[i];
    const ExprId name = pool_.literal(fmt::format("\"{}\"", plain_string(property.name)));
    const ExprId content = value(property.schemas);
    std::vector<uint32_t> before(std::min(i, last) + 1);
    for (size_t count = 0; count < before.size(); ++count) {
      const uint32_t without = property.required ? nfa.dead_end() : row[count];
      const size_t with = std::min(count + 1, last);
      before[count] = may_have_more(count) ? nfa.split(member(count, name, content, row[with]), without) : without;
    }
    row = std::move(before);
  }
  const uint32_t begin = nfa.build(pool_.sequence({pool_.literal("{"), text_.space()}), row[0]);
  return pool_.call(rules_.define("object", nfa.machine(begin)));
}

}  // namespace inferno::grammar
