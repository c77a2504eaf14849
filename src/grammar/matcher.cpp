#include "grammar/matcher.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/error.h"

namespace inferno::grammar {
namespace {

// States whose masks are found while the grammar is made: at about 0.1 ms each for a large vocabulary.
constexpr size_t kPrepared = 16;
// Of a mask that is found quickly, in nodes of the trie: about a third of a millisecond.
constexpr size_t kQuickWork = 100'000;
// Of what is forced, so many bytes are looked at: more than are guessed ahead at a time.
constexpr size_t kForcedBytes = 128;

// While it lives, the automaton does bounded work.
class QuickWork {
 public:
  explicit QuickWork(Automaton& automaton) : automaton_(automaton) { automaton_.set_bound(kQuickWork); }
  ~QuickWork() { automaton_.lift_bound(); }
  QuickWork(const QuickWork&) = delete;
  QuickWork& operator=(const QuickWork&) = delete;

 private:
  Automaton& automaton_;
};

}  // namespace

Grammar::Grammar(Rules rules, std::shared_ptr<const TokenTrie> trie, const Limits& limits)
    : automaton_(std::make_shared<const Program>(std::move(rules), limits), limits),
      masks_(std::move(trie), automaton_, limits),
      bytes_(automaton_.program().bytes() + limits.cache_bytes / 4) {
  if (masks_.trie().end_tokens().empty()) fail("this model names no token that ends a text, which a grammar needs");
  masks_.prepare(kPrepared);
  (void)Matcher(*this).mask();
  masks_.make_room();
}

Matcher::Matcher(Grammar& grammar) : grammar_(grammar), mask_(grammar.trie().words()) {}

void Matcher::refresh() {
  Automaton& automaton = grammar_.automaton_;
  automaton.trim();
  if (generation_ != automaton.generation()) {
    generation_ = automaton.generation();
    configs_.assign(1, automaton.start());
  }
  while (configs_.size() <= tokens_.size()) {
    const int32_t token = tokens_[configs_.size() - 1];
    const ConfigId next = advance(configs_.back(), token);
    if (next == Automaton::kDead) fail("the token {} does not fit the grammar", token);
    configs_.push_back(next);
  }
  if (generation_ != automaton.generation()) fail("the grammar needs too much memory for a text this long");
}

void Matcher::set_text(std::span<const int32_t> tokens) {
  const auto same = static_cast<size_t>(std::ranges::mismatch(tokens_, tokens).in1 - tokens_.begin());
  rollback(tokens_.size() - same);
  tokens_.insert(tokens_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(tokens_.size()), tokens.end());
}

void Matcher::reserve(size_t tokens) {
  tokens_.reserve(tokens);
  configs_.reserve(tokens + 1);
}

ConfigId Matcher::advance(ConfigId config, int32_t token) {
  const TokenTrie& trie = grammar_.trie();
  if (token < 0 || token >= trie.vocabulary()) return Automaton::kDead;
  if (std::ranges::count(trie.end_tokens(), token) > 0) {
    // Nothing may follow an end: the configuration stays, for those who look back.
    return grammar_.automaton_.may_end(config) ? config : Automaton::kDead;
  }
  const std::string_view bytes = trie.bytes(token);
  if (bytes.empty()) return Automaton::kDead;
  for (const char byte : bytes) config = grammar_.automaton_.step(config, static_cast<uint8_t>(byte));
  return config;
}

bool Matcher::accept(int32_t token) {
  refresh();
  const ConfigId next = advance(configs_.back(), token);
  if (next == Automaton::kDead) return false;
  tokens_.push_back(token);
  configs_.push_back(next);
  return true;
}

void Matcher::rollback(size_t tokens) {
  const size_t kept = tokens_.size() - std::min(tokens, tokens_.size());
  tokens_.resize(kept);
  if (configs_.size() > kept + 1) configs_.resize(kept + 1);
}

bool Matcher::may_end() {
  refresh();
  return grammar_.automaton_.may_end(configs_.back());
}

std::span<const uint32_t> Matcher::mask() {
  refresh();
  grammar_.masks_.fill(configs_.back(), mask_);
  found_all_ = grammar_.masks_.is_all();
  return mask_;
}

bool Matcher::find_mask_quickly() {
  const QuickWork quick(grammar_.automaton_);
  try {
    (void)mask();
    return true;
  } catch (const Automaton::TooMuch&) {
    return false;
  }
}

ConfigId Matcher::find_forced(std::span<char> out, size_t& count) {
  refresh();
  Automaton& automaton = grammar_.automaton_;
  ConfigId config = configs_.back();
  const auto only_byte = [&] {
    int only = -1;
    for (const Item& item : automaton.items(config)) {
      for (const ByteEdge& edge : automaton.program().edges(item.state)) {
        if (edge.low != edge.high || (only >= 0 && only != edge.low)) return -1;
        only = edge.low;
      }
    }
    return only;
  };
  for (count = 0; count < out.size() && !automaton.may_end(config); ++count) {
    const int byte = only_byte();
    if (byte < 0) break;
    out[count] = static_cast<char>(byte);
    config = automaton.step(config, static_cast<uint8_t>(byte));
  }
  return config;
}

std::string Matcher::forced_bytes(size_t most) {
  std::string bytes(most, '\0');
  size_t count = 0;
  find_forced(bytes, count);
  bytes.resize(count);
  return bytes;
}

bool Matcher::may_go_on(uint32_t node, ConfigId config) {
  const TokenTree& tree = grammar_.trie().all();
  for (uint32_t i = node + 1; i < tree.node(node).end; i = tree.node(i).end) {
    if (grammar_.automaton_.step(config, tree.node(i).byte) != Automaton::kDead) return true;
  }
  return false;
}

int32_t Matcher::guess_forced(std::span<int32_t> out) {
  const QuickWork quick(grammar_.automaton_);
  const TokenTree& tree = grammar_.trie().all();
  std::array<char, kForcedBytes> buffer;
  int32_t found = 0;
  try {
    size_t count = 0;
    const ConfigId end = find_forced(buffer, count);
    const std::string_view bytes(buffer.data(), count);
    for (size_t at = 0; at < bytes.size() && static_cast<size_t>(found) < out.size();) {
      uint32_t node = 0;
      size_t length = 0;
      size_t i = at;
      for (; i < bytes.size(); ++i) {
        const uint32_t next = tree.child(node, static_cast<uint8_t>(bytes[i]));
        if (next == 0) break;
        node = next;
        if (tree.tokens(node).empty()) continue;
        out[static_cast<size_t>(found)] = tree.tokens(node).front();
        length = i + 1 - at;
      }
      if (length == 0 || (i == bytes.size() && may_go_on(node, end))) break;
      at += length;
      ++found;
    }
  } catch (const Automaton::TooMuch&) {
    return found;  // what was found until then is as good as before
  }
  return found;
}

std::optional<int32_t> Matcher::forced_token() {
  std::optional<int32_t> only;
  const std::span<const uint32_t> allowed = mask();
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (allowed[i] == 0) continue;
    if (only || !std::has_single_bit(allowed[i])) return std::nullopt;
    only = static_cast<int32_t>(i * 32 + static_cast<size_t>(std::countr_zero(allowed[i])));
  }
  return only;
}

}  // namespace inferno::grammar
