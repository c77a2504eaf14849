#include "property_order.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "grammar/listed_values.h"

namespace inferno::grammar {
namespace {

using Json = nlohmann::ordered_json;

class Orderer {
 public:
  explicit Orderer(Grammar& bytes) : matcher_(bytes) {}

  // False: it does not fit here; what was written is taken back.
  bool write(const Json& value) {
    if (value.is_number()) return write_number(value);
    if (!value.is_structured()) return put(value.dump());
    // What fitted once mostly fits again.
    const auto known = known_.find(&value);
    if (known != known_.end() && put(known->second)) return true;
    if (tries_++ > kMaxTries) return false;
    const size_t before = text_.size();
    const bool fits = value.is_object() ? write_object(value) : write_array(value);
    if (fits) known_[&value] = text_.substr(before);
    if (!fits) take_back(before);
    return fits;
  }
  [[nodiscard]] bool is_complete() { return matcher_.may_end(); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  bool put(std::string_view text) {
    const size_t before = text_.size();
    for (const char c : text) {
      if (!matcher_.accept(static_cast<uint8_t>(c))) {
        take_back(before);
        return false;
      }
      text_.push_back(c);
    }
    return true;
  }
  void take_back(size_t size) {
    matcher_.rollback(text_.size() - size);
    text_.resize(size);
  }
  bool may_follow(const std::string& text) {
    const size_t before = text_.size();
    const bool fits = put(text);
    take_back(before);
    return fits;
  }

  // As it came, and a whole number in digits: 1 for 1.0.
  bool write_number(const Json& number) {
    return put(number.dump()) ||
           std::ranges::any_of(listed_texts(number, true), [&](const std::string& text) { return put(text); });
  }

  bool write_array(const Json& array) {
    if (!put("[")) return false;
    for (size_t i = 0; i < array.size(); ++i) {
      if ((i > 0 && !put(",")) || !write(array[i])) return false;
    }
    return put("]");
  }

  bool write_object(const Json& object) {
    std::vector<std::string> names;
    for (const auto& member : object.items()) names.push_back(member.key());
    return put("{") && write_members(object, names, "");
  }

  // Depth first; next comes what leaves a way to most of the others that could come here.
  bool write_members(const Json& object, const std::vector<std::string>& left, const std::string& comma) {
    if (left.empty()) return put("}");
    const auto name = [](const std::string& key) { return fmt::format("{}:", Json(key).dump()); };
    struct Choice {
      std::string key;
      std::ptrdiff_t others;  // that may follow it
    };
    std::vector<Choice> choices;
    for (const std::string& key : left) {
      const size_t before = text_.size();
      if (!put(comma + name(key)) || !write(object[key])) {
        take_back(before);
        continue;
      }
      const auto others = std::ranges::count_if(
          left, [&](const std::string& other) { return other != key && may_follow(fmt::format(",{}", name(other))); });
      choices.push_back({key, others});
      take_back(before);
    }
    std::ranges::sort(choices, std::greater(), &Choice::others);
    for (const Choice& choice : choices) {
      if (tries_++ > kMaxTries) return false;
      const size_t before = text_.size();
      std::vector<std::string> rest = left;
      std::erase(rest, choice.key);
      if (put(comma + name(choice.key)) && write(object[choice.key]) && write_members(object, rest, ",")) return true;
      take_back(before);
    }
    return false;
  }

  static constexpr int kMaxTries = 10'000;
  int tries_ = 0;
  std::map<const Json*, std::string> known_;  // texts of arrays and objects
  Matcher matcher_;
  std::string text_;
};

}  // namespace

std::optional<std::string> in_taken_form(Grammar& bytes, const Json& instance) {
  Orderer orderer(bytes);
  if (!orderer.write(instance) || !orderer.is_complete()) return std::nullopt;
  return orderer.text();
}

}  // namespace inferno::grammar
