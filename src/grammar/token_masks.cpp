#include "grammar/token_masks.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace inferno::grammar {
namespace {

// To walk a smaller subtree takes less than to know whether that is needed.
constexpr uint32_t kFewNodes = 8;

// Nodes walked between looks at the bound of the work.
constexpr uint32_t kWorkNodes = 256;
// States for which there is memory ahead, and nodes of each.
constexpr size_t kRoomStates = 16;
constexpr size_t kRoomNodes = 1024;

void set_bit(std::span<uint32_t> mask, int32_t token) {
  const auto i = static_cast<uint32_t>(token);
  mask[i / 32] |= 1U << (i % 32);
}

}  // namespace

TokenMasks::TokenMasks(std::shared_ptr<const TokenTrie> trie, Automaton& automaton, const Limits& limits)
    : trie_(std::move(trie)),
      automaton_(automaton),
      plain_runs_(automaton.program()),
      max_words_(limits.cache_bytes / 2 / sizeof(uint32_t)),
      own_of_(automaton.program().states(), kUnknown),
      levels_(trie_->max_depth() + 1),
      scratch_(trie_->words()),
      kept_(kKept, {Automaton::kDead, 0, false}),
      kept_masks_(kKept * trie_->words()) {}

template <bool with_ends>
void TokenMasks::walk(const TokenTree& tree, uint32_t node, ConfigId config, std::span<uint32_t> mask) {
  const uint32_t end = tree.node(node).end;
  uint32_t nodes = 0;
  levels_[tree.node(node).depth] = config;
  for (uint32_t i = node + 1; i < end;) {
    const TokenTree::Node& at = tree.node(i);
    if (++nodes % kWorkNodes == 0) automaton_.spend(kWorkNodes);
    const ConfigId next = automaton_.step(levels_[at.depth - 1U], at.byte);
    if (next == Automaton::kDead) {
      i = at.end;
      continue;
    }
    levels_[at.depth] = next;
    const bool ends = with_ends && automaton_.may_end(next);
    if (at.end - i > kFewNodes && at.at_char && !ends && (at.below & ~automaton_.loops(next)) == 0) {
      // Whatever comes, the text stays where it is.
      for (const int32_t token : tree.tokens_below(i)) set_bit(mask, token);
      i = at.end;
      continue;
    }
    for (const int32_t token : tree.tokens(i)) set_bit(mask, token);
    if (ends && at.end > i + 1) {
      automaton_.check_room(nodes_, 1);
      nodes_.push_back(i);
    }
    i = automaton_.items(next).empty() ? at.end : i + 1;
  }
}

TokenMasks::Own TokenMasks::find_own(uint32_t state) {
  Own own{};
  automaton_.check_room(words_, trie_->words());
  automaton_.check_room(owns_, 1);
  nodes_.resize(nodes_end_);
  own.nodes = static_cast<uint32_t>(nodes_.size());
  const ConfigId alone = automaton_.alone(state);
  if (plain_runs_.loops(state)) {
    std::ranges::copy(trie_->plain(TokenTrie::kPlainBytes), scratch_.begin());
    own.tree = &trie_->not_plain();
  } else {
    std::ranges::fill(scratch_, 0);
    own.tree = &trie_->all();
  }
  if (automaton_.program().is_outermost(state)) {
    walk<false>(*own.tree, 0, alone, scratch_);
  } else {
    walk<true>(*own.tree, 0, alone, scratch_);
  }
  nodes_end_ = nodes_.size();
  own.node_count = static_cast<uint32_t>(nodes_end_) - own.nodes;
  size_t tokens = 0;
  for (const uint32_t word : scratch_) tokens += static_cast<size_t>(std::popcount(word));
  own.is_list = tokens < scratch_.size();
  own.is_all = tokens + trie_->end_tokens().size() == static_cast<size_t>(trie_->vocabulary());
  own.first = static_cast<uint32_t>(words_.size());
  if (!own.is_list) {
    words_.insert(words_.end(), scratch_.begin(), scratch_.end());
  } else {
    for (size_t i = 0; i < scratch_.size(); ++i) {
      for (uint32_t word = scratch_[i]; word != 0; word &= word - 1) {
        words_.push_back(static_cast<uint32_t>(i * 32) + static_cast<uint32_t>(std::countr_zero(word)));
      }
    }
  }
  own.count = static_cast<uint32_t>(words_.size()) - own.first;
  return own;
}

const TokenMasks::Own& TokenMasks::own(uint32_t state) {
  if (own_of_[state] == kUnknown) {
    if (words_.size() + nodes_.size() > max_words_) drop_own();
    const Own found = find_own(state);
    own_of_[state] = static_cast<uint32_t>(owns_.size());
    owns_.push_back(found);
  }
  return owns_[own_of_[state]];
}

void TokenMasks::drop_own() {
  std::ranges::fill(own_of_, kUnknown);
  owns_.clear();
  words_.clear();
  nodes_.clear();
  nodes_end_ = 0;
}

void TokenMasks::make_room() {
  const auto reserve = [](auto& vector, size_t more) {
    if (vector.capacity() - vector.size() < more / 2) vector.reserve(vector.size() + vector.size() / 2 + more);
  };
  reserve(owns_, kRoomStates);
  reserve(words_, kRoomStates * trie_->words());
  reserve(nodes_, kRoomStates * kRoomNodes);
  automaton_.make_room();
}

void TokenMasks::add(const Own& own, std::span<uint32_t> mask) const {
  const auto words = std::span(words_).subspan(own.first, own.count);
  if (own.is_list) {
    for (const uint32_t token : words) set_bit(mask, static_cast<int32_t>(token));
  } else {
    for (size_t i = 0; i < words.size(); ++i) mask[i] |= words[i];
  }
}

void TokenMasks::fill(ConfigId config, std::span<uint32_t> mask) {
  const size_t words = trie_->words();
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (kept_[i].config != config || kept_[i].generation != automaton_.generation()) continue;
    std::ranges::copy(std::span(kept_masks_).subspan(i * words, words), mask.begin());
    is_all_ = kept_[i].is_all;
    return;
  }
  is_all_ = false;
  const bool is_deep =
      std::ranges::any_of(automaton_.items(config), [&](const Item& item) { return automaton_.is_deep(item.stack); });
  const int characters = plain_characters(config);
  if (is_deep) {
    std::ranges::fill(mask, 0);
    walk<false>(trie_->all(), 0, config, mask);
  } else if (characters >= 0) {
    std::ranges::copy(trie_->plain(static_cast<size_t>(characters)), mask.begin());
    walk<false>(trie_->not_plain(), 0, config, mask);
  } else {
    fill_by_state(config, mask);
  }
  if (automaton_.may_end(config)) {
    for (const int32_t token : trie_->end_tokens()) set_bit(mask, token);
  } else {
    is_all_ = false;
  }
  kept_[next_kept_] = {config, automaton_.generation(), is_all_};
  std::ranges::copy(mask, kept_masks_.begin() + static_cast<std::ptrdiff_t>(next_kept_ * words));
  next_kept_ = (next_kept_ + 1) % kKept;
}

int TokenMasks::plain_characters(ConfigId config) const {
  const std::span<const Item> items = automaton_.items(config);
  // What a loop allows is remembered for all stacks.
  if (items.size() == 1 && plain_runs_.loops(items[0].state)) return -1;
  return plain_runs_.characters(items);
}

void TokenMasks::fill_by_state(ConfigId config, std::span<uint32_t> mask) {
  std::ranges::fill(mask, 0);
  for (size_t i = 0; i < automaton_.items(config).size(); ++i) {
    const Item item = automaton_.items(config)[i];
    const Own found = own(item.state);
    add(found, mask);
    is_all_ = is_all_ || found.is_all;
    if (item.stack == Automaton::kBottom || found.node_count == 0) continue;
    const ConfigId after = automaton_.after_return(item.stack);
    if (automaton_.items(after).empty()) continue;
    for (uint32_t n = 0; n < found.node_count; ++n) walk<false>(*found.tree, nodes_[found.nodes + n], after, mask);
  }
}

void TokenMasks::prepare(size_t states) {
  for (uint32_t s = 0; s < automaton_.program().states() && states > 0; ++s) {
    if (!plain_runs_.loops(s)) continue;
    (void)own(s);
    --states;
  }
}

}  // namespace inferno::grammar
