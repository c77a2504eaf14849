#include "grammar/automaton.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/error.h"
#include "grammar/token_trie.h"
#include "grammar/utf8_leads.h"

namespace inferno::grammar {
namespace {

uint64_t mix(uint64_t value) {
  value *= 0x9E3779B97F4A7C15U;
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93U;
  return value ^ value >> 29;
}

// What a step that is not known yet costs, in nodes of a trie.
constexpr size_t kStepWork = 32;
// Configurations for which there is memory ahead.
constexpr size_t kRoom = 1024;

uint64_t hash_of(const Item& item) {
  return mix(uint64_t{item.state} << 32 | item.stack);
}

// A slot that holds what is looked for, or a free one.
template <typename Table, typename Matches>
uint32_t& find_slot(Table& table, uint64_t hash, Matches matches) {
  const size_t mask = table.slots.size() - 1;
  size_t slot = hash & mask;
  while (table.slots[slot] != 0 && !matches(table.slots[slot])) slot = (slot + 1) & mask;
  return table.slots[slot];
}

template <typename Table, typename HashOf>
void rehash(Table& table, HashOf of) {
  std::vector<uint32_t> old(table.slots.size() * 2);
  old.swap(table.slots);
  for (const uint32_t id : old) {
    if (id != 0) find_slot(table, of(id), [](uint32_t) { return false; }) = id;
  }
}

uint64_t hash_of_stack(uint32_t state, StackId below) {
  return mix(uint64_t{state} << 32 | below);
}

template <typename T>
void reserve_more(std::vector<T>& vector, size_t more) {
  if (vector.capacity() - vector.size() < more / 2) vector.reserve(vector.size() + vector.size() / 2 + more);
}

}  // namespace

Automaton::Automaton(std::shared_ptr<const Program> program, const Limits& limits)
    : program_(std::move(program)), limits_(limits), classes_(program_->classes()) {
  seen_.resize(std::bit_ceil(4 * limits_.parallel_states));
  found_.reserve(limits_.parallel_states);
  open_.reserve(limits_.parallel_states);
  reset();
}

void Automaton::reset() {
  const bool was_bounded = std::exchange(is_bounded_, false);
  stacks_.clear();
  configs_.clear();
  items_.clear();
  next_.clear();
  for (Table* table : {&stack_table_, &config_table_}) {
    std::ranges::fill(table->slots, 0);
    table->used = 0;
  }
  bytes_ = 0;
  ++generation_;
  stacks_.push_back({.state = 0, .below = kBottom, .depth = 0, .after = kDead});
  configs_.push_back({.first = 0, .count = 0, .hash = 0, .ends = false, .loops = 0});
  next_.assign(classes_, kDead);
  close(program_->start(), kBottom);
  start_ = intern();
  is_bounded_ = was_bounded;
}

void Automaton::make_room() {
  reserve_more(configs_, kRoom);
  reserve_more(next_, kRoom * classes_);
  reserve_more(items_, kRoom * 2 + limits_.parallel_states);
  reserve_more(stacks_, kRoom + limits_.parallel_states);
  if (4 * (config_table_.used + kRoom) >= config_table_.slots.size()) {
    rehash(config_table_, [&](ConfigId id) { return configs_[id].hash; });
  }
  if (4 * (stack_table_.used + kRoom) >= stack_table_.slots.size()) {
    rehash(stack_table_, [&](StackId id) { return hash_of_stack(stacks_[id].state, stacks_[id].below); });
  }
}

void Automaton::check_room_for_config() {
  if (!is_bounded_) return;
  const bool has_room = configs_.size() < configs_.capacity() && next_.size() + classes_ <= next_.capacity() &&
                        items_.size() + found_.size() <= items_.capacity() && !config_table_.is_full();
  if (has_room) return;
  forget_found();
  throw TooMuch{};
}

void Automaton::check_room_for_stack() {
  if (!is_bounded_ || (stacks_.size() < stacks_.capacity() && !stack_table_.is_full())) return;
  forget_found();
  throw TooMuch{};
}

void Automaton::trim() {
  if (bytes_ > limits_.cache_bytes / 2) reset();
}

void Automaton::count_bytes(size_t bytes) {
  bytes_ += bytes;
  if (bytes_ <= limits_.cache_bytes) return;
  forget_found();
  reset();
  fail("the grammar needs more than {} bytes for one token", limits_.cache_bytes);
}

void Automaton::forget_found() {
  seen_count_ = 0;
  found_.clear();
  open_.clear();
  found_end_ = false;
}

ConfigId Automaton::alone(uint32_t state) {
  found_.push_back({state, kBottom});
  return intern();
}

ConfigId Automaton::after_return(StackId stack) {
  if (stacks_[stack].after == kUnknown) {
    spend(kStepWork);
    close(stacks_[stack].state, stacks_[stack].below);
    const ConfigId after = intern();
    stacks_[stack].after = after;
  }
  return stacks_[stack].after;
}

ConfigId Automaton::find_step(ConfigId config, uint32_t byte_class) {
  const uint8_t byte = program_->byte_of(byte_class);
  spend(kStepWork);
  for (uint32_t i = 0; i < configs_[config].count; ++i) {
    const Item item = items_[configs_[config].first + i];
    for (const ByteEdge& edge : program_->edges(item.state)) {
      if (edge.low <= byte && byte <= edge.high) close(edge.target, item.stack);
    }
  }
  const ConfigId next = intern();
  next_[config * size_t{classes_} + byte_class] = next;
  return next;
}

// Whether all characters go back to `to` with so many more bytes, the first of them within low and high.
bool Automaton::returns_after(ConfigId from, int bytes, uint8_t low, uint8_t high, ConfigId to) {
  if (bytes == 0) return from == to;
  uint32_t before = UINT32_MAX;
  for (unsigned byte = low; byte <= high; ++byte) {
    const uint32_t byte_class = program_->class_of(static_cast<uint8_t>(byte));
    if (byte_class == before) continue;
    before = byte_class;
    const ConfigId next = step(from, static_cast<uint8_t>(byte));
    if (next == kDead || !returns_after(next, bytes - 1, 0x80, 0xBF, to)) return false;
  }
  return true;
}

uint16_t Automaton::find_loops(ConfigId config) {
  uint16_t loops = 0;
  // Where letters lead elsewhere, nothing is worth knowing.
  if (step(config, 'a') == config) {
    loops = kBroken - 1;
    for (unsigned byte = 0; byte < 0x80; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      if (step(config, b) != config) loops &= static_cast<uint16_t>(~ascii_kind(b));
    }
    const bool multibyte = std::ranges::all_of(kUtf8Leads, [&](const Utf8Lead& lead) {
      for (unsigned byte = lead.first; byte <= lead.last; ++byte) {
        const ConfigId next = step(config, static_cast<uint8_t>(byte));
        if (next == kDead || !returns_after(next, lead.more, lead.low, lead.high, config)) return false;
      }
      return true;
    });
    if (!multibyte) loops &= static_cast<uint16_t>(~kMultibyte);
  }
  configs_[config].loops = loops;
  return loops;
}

void Automaton::close(uint32_t state, StackId stack) {
  if (is_new(state, stack)) open_.push_back({state, stack});
  while (!open_.empty()) {
    const Item item = open_.back();
    open_.pop_back();
    if (!program_->edges(item.state).empty()) found_.push_back(item);
    for (const CallEdge& call : program_->calls(item.state)) {
      const bool returns = !program_->only_ends(call.target);
      if (returns && stacks_[item.stack].depth >= limits_.stack_depth) continue;
      const StackId below = returns ? push(call.target, item.stack) : item.stack;
      if (is_new(call.rule, below)) open_.push_back({call.rule, below});
    }
    if (!program_->is_final(item.state)) continue;
    if (item.stack == kBottom) {
      found_end_ = true;
    } else if (is_new(stacks_[item.stack].state, stacks_[item.stack].below)) {
      open_.push_back({stacks_[item.stack].state, stacks_[item.stack].below});
    }
  }
}

bool Automaton::is_new(uint32_t state, StackId stack) {
  if (seen_count_ == 0) ++stamp_;
  const Item item{state, stack};
  const size_t mask = seen_.size() - 1;
  size_t slot = hash_of(item) & mask;
  for (; seen_[slot].stamp == stamp_; slot = (slot + 1) & mask) {
    if (seen_[slot].item == item) return false;
  }
  if (++seen_count_ > limits_.parallel_states) {
    forget_found();
    fail("the grammar can read the text in more than {} ways at once", limits_.parallel_states);
  }
  seen_[slot] = {item, stamp_};
  return true;
}

StackId Automaton::push(uint32_t state, StackId below) {
  uint32_t& slot = find_slot(stack_table_, hash_of_stack(state, below),
                             [&](StackId id) { return stacks_[id].state == state && stacks_[id].below == below; });
  if (slot != 0) return slot;
  check_room_for_stack();
  count_bytes(sizeof(Stack) + 2 * sizeof(StackId));
  const auto made = static_cast<StackId>(stacks_.size());
  slot = made;
  stacks_.push_back({.state = state, .below = below, .depth = stacks_[below].depth + 1, .after = kUnknown});
  ++stack_table_.used;
  if (stack_table_.is_full() && !is_bounded_) {
    rehash(stack_table_, [&](StackId id) { return hash_of_stack(stacks_[id].state, stacks_[id].below); });
  }
  return made;
}

ConfigId Automaton::intern() {
  seen_count_ = 0;
  const bool ends = std::exchange(found_end_, false);
  if (found_.empty() && !ends) return kDead;
  std::ranges::sort(found_);
  uint64_t hash = ends ? 1 : 0;
  for (const Item& item : found_) hash = mix(hash ^ hash_of(item));
  uint32_t& slot = find_slot(config_table_, hash, [&](ConfigId id) {
    return configs_[id].hash == hash && configs_[id].ends == ends && std::ranges::equal(items(id), found_);
  });
  if (slot == 0) {
    check_room_for_config();
    count_bytes(sizeof(Config) + found_.size() * sizeof(Item) + classes_ * sizeof(ConfigId) + 2 * sizeof(ConfigId));
    const auto made = static_cast<ConfigId>(configs_.size());
    slot = made;
    configs_.push_back({.first = static_cast<uint32_t>(items_.size()),
                        .count = static_cast<uint32_t>(found_.size()),
                        .hash = hash,
                        .ends = ends,
                        .loops = kLoopsUnknown});
    items_.insert(items_.end(), found_.begin(), found_.end());
    next_.resize(next_.size() + classes_, kUnknown);
    ++config_table_.used;
    if (config_table_.is_full() && !is_bounded_) rehash(config_table_, [&](ConfigId id) { return configs_[id].hash; });
    found_.clear();
    return made;
  }
  found_.clear();
  return slot;
}

}  // namespace inferno::grammar
