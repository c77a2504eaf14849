#include "calls/free_text.h"

#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "grammar/token_trie.h"

namespace inferno::calls {
namespace {

using grammar::RuleId;

// In a phase, with the bytes read that an exit begins with; or before a call.
struct Place {
  size_t phase = 0;
  std::string matched = {};
  std::optional<RuleId> call = {};
  auto operator<=>(const Place&) const = default;
};
using NextPlace = std::optional<Place>;  // empty: the byte may not come

constexpr std::string_view kSkipped = " \n\r\t\xFF";  // before what is at a beginning
static_assert(kSkipped.back() == grammar::TokenTrie::kControlByte);

class Builder {
 public:
  Builder(const std::vector<TextPhase>& phases, size_t start) : phases_(phases), prefixes_(phases.size()) {
    for (size_t p = 0; p < phases.size(); ++p) {
      for (const PhaseExit& exit : phases[p].exits) {
        for (size_t n = 0; n < exit.text.size(); ++n) prefixes_[p][exit.text.substr(0, n)].more.insert(exit.text[n]);
        prefixes_[p][exit.text].exit = &exit;
      }
    }
    (void)number({.phase = start});
  }

  grammar::Machine run() {
    grammar::Machine machine;
    for (size_t next = 0; next < places_.size();) {
      const Place place = places_[next++];  // a copy: places are added
      machine.add_state(!place.call && phases_[place.phase].may_end);
      if (place.call) {
        machine.add_call(*place.call, number({.phase = place.phase}));
      } else if (!phases_[place.phase].ends) {
        add_edges(place, machine);
      }
    }
    return machine;
  }

 private:
  struct Prefix {
    std::set<char> more;              // bytes that exits go on with
    const PhaseExit* exit = nullptr;  // that it is
  };

  uint32_t number(const Place& place) {
    const auto [found, is_new] = numbers_.try_emplace(place, static_cast<uint32_t>(places_.size()));
    if (is_new) places_.push_back(place);
    return found->second;
  }

  void add_edges(const Place& place, grammar::Machine& machine) {
    // All bytes but a few do the same.
    std::set<char> special;
    collect(place, special);
    std::array<std::optional<uint32_t>, 256> targets;
    std::optional<NextPlace> usual;
    for (size_t byte = 0; byte < targets.size(); ++byte) {
      const auto c = static_cast<char>(byte);
      if (!special.contains(c) && !usual) usual = after(place, c);
      const NextPlace next = special.contains(c) ? after(place, c) : *usual;
      if (next) targets[byte] = number(*next);
    }
    for (size_t low = 0; low < targets.size();) {
      size_t high = low;
      while (high + 1 < targets.size() && targets[high + 1] == targets[low]) ++high;
      if (targets[low]) machine.add_edge(static_cast<uint8_t>(low), static_cast<uint8_t>(high), *targets[low]);
      low = high + 1;
    }
  }

  const Prefix* find(size_t phase, const std::string& text) const {
    const auto found = prefixes_[phase].find(text);
    return found == prefixes_[phase].end() ? nullptr : &found->second;
  }

  // The bytes that matter at a place.
  void collect(const Place& place, std::set<char>& bytes) const {
    const TextPhase& phase = phases_[place.phase];
    if (phase.ends || place.call) return;
    for (size_t from = 0; from <= place.matched.size(); ++from) {
      if (const Prefix* prefix = find(place.phase, place.matched.substr(from))) {
        bytes.insert(prefix->more.begin(), prefix->more.end());
      }
    }
    if (!phase.at_beginning) return;
    if (place.matched.empty()) bytes.insert(kSkipped.begin(), kSkipped.end());
    if (const NextPlace next = elsewhere(place)) collect(*next, bytes);
  }

  // In the phase that follows a beginning which was none.
  NextPlace elsewhere(const Place& place) const {
    const size_t phase = phases_[place.phase].otherwise;
    NextPlace next = phase == kNoPhase ? NextPlace() : Place{.phase = phase};
    for (const char c : place.matched) next = next ? after(*next, c) : next;
    return next;
  }

  NextPlace after(const Place& place, char byte) const {
    const TextPhase& phase = phases_[place.phase];
    if (phase.ends || place.call) return std::nullopt;
    std::string text = place.matched + byte;
    if (phase.at_beginning) {
      if (place.matched.empty() && kSkipped.find(byte) != std::string_view::npos) return place;
      if (const Prefix* prefix = find(place.phase, text)) return reached(place.phase, text, *prefix);
      const NextPlace next = elsewhere(place);
      return next ? after(*next, byte) : next;
    }
    for (; !text.empty(); text.erase(0, 1)) {
      if (const Prefix* prefix = find(place.phase, text)) return reached(place.phase, text, *prefix);
    }
    return Place{.phase = place.phase};
  }

  static NextPlace reached(size_t phase, const std::string& text, const Prefix& prefix) {
    if (prefix.exit == nullptr) return Place{.phase = phase, .matched = text};
    if (prefix.exit->phase == kNoPhase) return std::nullopt;
    return Place{.phase = prefix.exit->phase, .call = prefix.exit->call};
  }

  const std::vector<TextPhase>& phases_;
  std::vector<std::map<std::string, Prefix>> prefixes_;  // [phase]
  std::map<Place, uint32_t> numbers_;
  std::vector<Place> places_;
};

}  // namespace

grammar::Machine free_text(const std::vector<TextPhase>& phases, size_t start) {
  return Builder(phases, start).run();
}

}  // namespace inferno::calls
