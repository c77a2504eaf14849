#include "grammar/plain_runs.h"

#include <algorithm>
#include <array>
#include <utility>

#include "grammar/token_trie.h"
#include "grammar/utf8_leads.h"

namespace inferno::grammar {
namespace {

constexpr uint8_t kMost = TokenTrie::kPlainBytes;
// Rounds until lengths are settled; chains and loops need two or three.
constexpr int kRounds = 64;

// [byte]: how many of the bytes before it are plain ASCII characters.
constexpr std::array<uint8_t, 257> kPlainBefore = [] {  // as ascii_kind() and TokenTrie::kPlainKinds have it
  std::array<uint8_t, 257> before{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool plain = byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\';
    before[byte + 1] = static_cast<uint8_t>(before[byte] + (plain ? 1 : 0));
  }
  return before;
}();
constexpr size_t kPlainAscii = kPlainBefore[256];

size_t plain_ascii(const ByteEdge& edge) {
  return kPlainBefore[edge.high + 1U] - kPlainBefore[edge.low];
}

// A bit for each ASCII character from low to high.
struct AsciiBits {
  uint64_t low_half = 0, high_half = 0;
};
AsciiBits ascii_bits(unsigned low, unsigned high) {
  const auto below = [](unsigned bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; };
  const auto half = [&](unsigned from, unsigned to) { return to <= from ? 0 : below(to) & ~below(from); };
  const unsigned end = std::min(high + 1, 128U);
  return {.low_half = half(low, std::min(end, 64U)),
          .high_half = half(std::max(low, 64U) - 64, std::max(end, 64U) - 64)};
}

// Where a state is after any one plain character.
struct Follow {
  bool takes_all = false;         // plain characters, and each leads to one of the targets
  bool takes_none = false;        // of them
  bool ends_within = false;       // the rule may end inside a character
  std::vector<uint32_t> targets;  // without repetitions
};

class Reader {
 public:
  explicit Reader(const Program& program) : program_(program), one_char_(program.states()) { find_one_char(); }

  [[nodiscard]] bool is_one_char(uint32_t state) const { return one_char_[state]; }

  [[nodiscard]] Follow read(uint32_t state) {
    follow_ = {};
    size_t ascii = 0;
    bool multibyte = !program_.calls(state).empty();
    for (const ByteEdge& edge : program_.edges(state)) {
      ascii += plain_ascii(edge);
      multibyte = multibyte || edge.high >= 0xC2;
    }
    follow_.takes_none = ascii == 0 && !multibyte;
    // Most states of a grammar take a few bytes.
    if (ascii >= kPlainAscii && multibyte) follow_.takes_all = takes_ascii(state) && takes_multibyte(state);
    return std::move(follow_);
  }

 private:
  void add(uint32_t target) {
    if (std::ranges::count(follow_.targets, target) == 0) follow_.targets.push_back(target);
  }
  // All of them: the state takes as many, and none twice.
  bool takes_ascii(uint32_t state) {
    AsciiBits seen;
    for (const ByteEdge& edge : program_.edges(state)) {
      if (plain_ascii(edge) == 0) continue;
      add(edge.target);
      const AsciiBits own = ascii_bits(edge.low, edge.high);
      if ((seen.low_half & own.low_half) != 0 || (seen.high_half & own.high_half) != 0) return false;
      seen.low_half |= own.low_half;
      seen.high_half |= own.high_half;
    }
    return true;
  }
  bool takes_multibyte(uint32_t state) {
    const auto calls = program_.calls(state);
    if (calls.size() == 1 && is_one_char(calls[0].rule)) {
      add(calls[0].target);
      return std::ranges::none_of(program_.edges(state), [](const ByteEdge& edge) { return edge.high >= 0x80; });
    }
    return calls.empty() && takes_known_leads(state);
  }
  // The states of one machine mostly go on alike where a character has several bytes: what was found for the last state
  // is found again.
  bool takes_known_leads(uint32_t state) {
    const auto edges = program_.edges(state);
    const auto first = std::ranges::find_if(edges, [](const ByteEdge& edge) { return edge.high >= 0x80; });
    const std::span<const ByteEdge> leads(first, edges.end());
    const auto same = [](const ByteEdge& a, const ByteEdge& b) {
      return a.low == b.low && a.high == b.high && a.target == b.target;
    };
    if (!std::ranges::equal(leads, known_leads_, same)) {
      Follow before = std::exchange(follow_, {});
      known_takes_ = takes_leads(state);
      known_leads_.assign(leads.begin(), leads.end());
      known_follow_ = std::exchange(follow_, std::move(before));
    }
    for (const uint32_t target : known_follow_.targets) add(target);
    follow_.ends_within = follow_.ends_within || known_follow_.ends_within;
    return known_takes_;
  }
  bool takes_leads(uint32_t state) {
    return std::ranges::all_of(kUtf8Leads, [&](const Utf8Lead& lead) {
      return takes_range(state, lead.first, lead.last,
                         [&](uint32_t next) { return takes_rest(next, lead.more, lead.low, lead.high); });
    });
  }
  // Whether the state takes every byte of the range, and each target is good.
  template <typename Good>
  bool takes_range(uint32_t state, uint8_t low, uint8_t high, Good good) {
    int covered = 0;
    for (const ByteEdge& edge : program_.edges(state)) {
      const int first = std::max(low, edge.low);
      const int last = std::min(high, edge.high);
      if (first > last) continue;
      covered += last - first + 1;
      if (!good(edge.target)) return false;
    }
    return covered == high - low + 1;
  }
  bool takes_rest(uint32_t state, int more, uint8_t low, uint8_t high) {
    follow_.ends_within = follow_.ends_within || program_.is_final(state);
    if (!program_.calls(state).empty()) return false;
    return takes_range(state, low, high, [&](uint32_t next) {
      if (more == 1) add(next);
      return more == 1 || takes_rest(next, more - 1, 0x80, 0xBF);
    });
  }

  // Rules that take every character beyond ASCII, and whatever does not begin as a plain one, and then end.
  void find_one_char() {
    for (uint32_t s = 0; s < program_.states(); ++s) {
      for (const CallEdge& call : program_.calls(s)) {
        const uint32_t rule = call.rule;
        if (one_char_[rule] || !program_.calls(rule).empty()) continue;
        const bool ascii =
            std::ranges::any_of(program_.edges(rule), [](const ByteEdge& edge) { return plain_ascii(edge) > 0; });
        follow_ = {};
        one_char_[rule] = !ascii && takes_leads(rule) && !follow_.ends_within &&
                          std::ranges::all_of(follow_.targets, [&](uint32_t t) { return program_.only_ends(t); });
      }
    }
    // Callers must count it, or it is a rule as others.
    for (uint32_t s = 0; s < program_.states(); ++s) {
      for (const CallEdge& call : program_.calls(s)) {
        if (one_char_[call.rule] && !read(s).takes_all) one_char_[call.rule] = false;
      }
    }
    follow_ = {};
  }

  const Program& program_;
  std::vector<bool> one_char_;  // (states)
  Follow follow_;
  // Of the last state that takes_known_leads() looked at: its edges from the first that is not ASCII on.
  std::vector<ByteEdge> known_leads_;
  Follow known_follow_;
  bool known_takes_ = false;
};

}  // namespace

PlainRuns::PlainRuns(const Program& program) : runs_(program.states()) {
  Reader reader(program);
  struct Taking {
    uint32_t state;
    std::vector<uint32_t> targets;
  };
  std::vector<Taking> taking;  // states that take any plain character
  for (uint32_t s = 0; s < program.states(); ++s) {
    if (reader.is_one_char(s)) {
      runs_[s] = kOneChar;
      continue;
    }
    Follow follow = reader.read(s);
    if (follow.takes_none && !program.is_final(s)) runs_[s] = kIsExact;
    if (!follow.takes_all) continue;
    const bool stays = follow.targets.size() == 1 && follow.targets[0] == s;
    const bool ends = follow.ends_within || program.is_final(s);
    runs_[s] = static_cast<uint16_t>(kMost | (stays && !ends ? kLoops : 0) | (ends ? 0 : kIsExact));
    taking.push_back({s, std::move(follow.targets)});
  }
  // From above, in the order in which chains are settled at once.
  bool changed = true;
  for (int round = 0; changed && round < kRounds; ++round) {
    changed = false;
    for (size_t i = taking.size(); i-- > 0;) {
      const auto& [state, targets] = taking[i];
      unsigned length = kMost;
      unsigned longest = 0;
      bool exact = (runs_[state] & kIsExact) != 0;
      for (const uint32_t target : targets) {
        const unsigned after = std::min<unsigned>(kMost, (runs_[target] & kLength) + 1U);
        length = std::min(length, after);
        longest = std::max(longest, after);
        exact = exact && (runs_[target] & kIsExact) != 0;
      }
      exact = exact && length == longest;
      const auto run = static_cast<uint16_t>(length | (runs_[state] & kLoops) | (exact ? kIsExact : 0));
      changed = changed || run != runs_[state];
      runs_[state] = run;
    }
  }
  // What is not settled is not known.
  if (changed) {
    for (const Taking& t : taking) runs_[t.state] = 0;
  }
}

int PlainRuns::characters(std::span<const Item> items) const {
  unsigned length = 0;
  bool exact = true;
  for (const Item& item : items) {
    const uint16_t run = runs_[item.state];
    length = std::max<unsigned>(length, run & kLength);
    exact = exact && (run & (kIsExact | kOneChar)) != 0;
  }
  return length == kMost || (exact && length > 0) ? static_cast<int>(length) : -1;
}

}  // namespace inferno::grammar
