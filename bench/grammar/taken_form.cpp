#include "taken_form.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "grammar/listed_values.h"

namespace inferno::grammar {
namespace {

using Json = nlohmann::ordered_json;

class Orderer {
 public:
  // sorted: members are tried by their names at first, not as the instance has them.
  Orderer(Grammar& bytes, bool sorted) : sorted_(sorted), matcher_(bytes) {}

  // False: it does not fit here; what was written is taken back.
  bool write(const Json& value) {
    if (value.is_number()) return write_number(value);
    if (!value.is_structured()) return put(value.dump());
    // What fitted once mostly fits again.
    const auto known = known_.find(&value);
    if (known != known_.end() && put(known->second)) return true;
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

  // Takes whatever fits next, in the order that is preferred. What is left in the end should have come earlier: it is
  // preferred at the last place where it fits the next time.
  bool write_object(const Json& object) {
    std::vector<std::string> preferred;
    for (const auto& member : object.items()) preferred.push_back(member.key());
    if (sorted_) std::ranges::sort(preferred);
    std::set<std::vector<std::string>> tried;
    const size_t before = text_.size();
    while (tried.insert(preferred).second) {
      std::vector<std::string> left = preferred;
      std::vector<std::string> order;
      if (!put("{")) return false;
      std::vector<size_t> ends = {text_.size()};
      for (auto next = left.begin(); next != left.end();) {
        if (!write_member(object, *next, order.empty())) {
          ++next;
          continue;
        }
        order.push_back(*next);
        ends.push_back(text_.size());
        left.erase(next);
        next = left.begin();
      }
      if (left.empty()) return put("}");
      size_t place = order.size();
      for (bool fits = false; place > 0 && !fits; fits = write_member(object, left.front(), place == 0)) {
        take_back(ends[--place]);
      }
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(place), left.begin(), left.end());
      preferred = std::move(order);
      take_back(before);
    }
    return false;
  }

  bool write_member(const Json& object, const std::string& key, bool is_first) {
    const size_t before = text_.size();
    if (put(fmt::format("{}{}:", is_first ? "" : ",", Json(key).dump())) && write(object[key])) return true;
    take_back(before);
    return false;
  }

  bool sorted_;
  std::map<const Json*, std::string> known_;  // texts of arrays and objects
  Matcher matcher_;
  std::string text_;
};

}  // namespace

std::optional<std::string> in_taken_form(Grammar& bytes, const Json& instance) {
  for (const bool sorted : {false, true}) {
    Orderer orderer(bytes, sorted);
    if (orderer.write(instance) && orderer.is_complete()) return orderer.text();
  }
  return std::nullopt;
}

}  // namespace inferno::grammar
