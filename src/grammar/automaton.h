// The pushdown automaton at work: where a text stands in a grammar, made deterministic as texts come by.
//
// A configuration is a set of ways to have read the text so far: each a state of the program with a stack of states to
// return to. Equal stacks and equal configurations are stored once and have a number, and each configuration remembers
// where bytes lead from it. So most steps are one look into a table.
//
// A thread that must not wait sets a bound: work beyond it, or beyond the memory that is there, is not begun but thrown
// back as TooMuch, and somebody else does it. Everything is then as if it had not been tried.
//
// Not for several threads at once. What is remembered is dropped when it grows too large; the generation then tells
// that numbers from before mean nothing any more.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/limits.h"
#include "grammar/program.h"

namespace inferno::grammar {

using ConfigId = uint32_t;
using StackId = uint32_t;

struct Item {
  uint32_t state;
  StackId stack;
  bool operator==(const Item&) const = default;
  auto operator<=>(const Item&) const = default;
};

class Automaton {
 public:
  static constexpr ConfigId kDead = 0;   // no way to go on, and no end
  static constexpr StackId kBottom = 0;  // nothing to return to: the end of the rule is the end

  Automaton(std::shared_ptr<const Program> program, const Limits& limits);

  [[nodiscard]] const Program& program() const { return *program_; }
  [[nodiscard]] ConfigId start() const { return start_; }
  // Where the byte leads. An Error when the text can be read in too many ways at once.
  [[nodiscard]] ConfigId step(ConfigId config, uint8_t byte) {
    const uint32_t byte_class = program_->class_of(byte);
    const ConfigId next = next_[config * size_t{classes_} + byte_class];
    return next != kUnknown ? next : find_step(config, byte_class);
  }
  // The text may end here.
  [[nodiscard]] bool may_end(ConfigId config) const { return configs_[config].ends; }
  // Every item has edges over bytes.
  [[nodiscard]] std::span<const Item> items(ConfigId config) const {
    return std::span(items_).subspan(configs_[config].first, configs_[config].count);
  }
  // Kinds of bytes (ByteKind) of which each leads back here: multibyte ones with the character they belong to.
  [[nodiscard]] uint16_t loops(ConfigId config) {
    const uint16_t known = configs_[config].loops;
    return known != kLoopsUnknown ? known : find_loops(config);
  }
  // The configuration of one state as if its rule were the whole grammar, and only by the state's own bytes.
  [[nodiscard]] ConfigId alone(uint32_t state);
  // Where the rule that ends with this stack goes on.
  [[nodiscard]] ConfigId after_return(StackId stack);

  // So deep that a token might reach the limit, where what may come depends on the depth.
  [[nodiscard]] bool is_deep(StackId stack) const { return stacks_[stack].depth >= limits_.stack_depth / 2; }

  struct TooMuch {};
  // About as much as the nodes of a trie that could be walked meanwhile.
  void set_bound(size_t work) {
    is_bounded_ = true;
    work_left_ = work;
  }
  void lift_bound() { is_bounded_ = false; }
  void spend(size_t work) {
    if (!is_bounded_) return;
    if (work > work_left_) throw TooMuch{};
    work_left_ -= work;
  }
  // The same for memory, before a vector grows by so many.
  template <typename T>
  void check_room(const std::vector<T>& grows, size_t by) const {
    if (is_bounded_ && grows.size() + by > grows.capacity()) throw TooMuch{};
  }
  // Memory for many steps to come.
  void make_room();

  [[nodiscard]] uint64_t generation() const { return generation_; }
  [[nodiscard]] uint32_t config_count() const { return static_cast<uint32_t>(configs_.size()); }
  // Drops what is remembered when it is a lot. Between texts' steps only.
  void trim();

 private:
  static constexpr ConfigId kUnknown = UINT32_MAX;
  static constexpr uint16_t kLoopsUnknown = UINT16_MAX;
  struct Stack {
    uint32_t state;  // to return to
    StackId below;
    uint32_t depth;
    ConfigId after;  // after_return(), or kUnknown
  };
  struct Config {
    uint32_t first, count;  // of items_
    uint64_t hash;
    bool ends;
    uint16_t loops;
  };
  // Numbers by hash, open addressing, at most half full; 0 is free.
  struct Table {
    std::vector<uint32_t> slots = std::vector<uint32_t>(256);
    size_t used = 0;
    [[nodiscard]] bool is_full() const { return 2 * (used + 1) >= slots.size(); }
  };

  void reset();
  uint16_t find_loops(ConfigId config);
  [[nodiscard]] bool returns_after(ConfigId from, int bytes, uint8_t low, uint8_t high, ConfigId to);
  ConfigId find_step(ConfigId config, uint32_t byte_class);
  // Adds the state and all it leads to by calls and returns to found_.
  void close(uint32_t state, StackId stack);
  [[nodiscard]] bool is_new(uint32_t state, StackId stack);
  [[nodiscard]] StackId push(uint32_t state, StackId below);
  // The configuration of what is in found_, which is empty afterwards.
  [[nodiscard]] ConfigId intern();
  void count_bytes(size_t bytes);
  // Throws TooMuch where adding what is in found_, or a stack, would allocate.
  void check_room_for_config();
  void check_room_for_stack();
  void forget_found();

  std::shared_ptr<const Program> program_;
  Limits limits_;
  uint32_t classes_;
  ConfigId start_ = kDead;
  uint64_t generation_ = 0;
  size_t bytes_ = 0;
  bool is_bounded_ = false;
  size_t work_left_ = 0;

  std::vector<Stack> stacks_;
  std::vector<Config> configs_;
  std::vector<Item> items_;
  std::vector<ConfigId> next_;  // [config][class]
  Table stack_table_, config_table_;

  // Of the configuration that is being made.
  std::vector<Item> found_, open_;
  bool found_end_ = false;
  struct Seen {
    Item item;
    uint64_t stamp;
  };
  std::vector<Seen> seen_;  // open addressing
  uint64_t stamp_ = 0;
  size_t seen_count_ = 0;
};

}  // namespace inferno::grammar
