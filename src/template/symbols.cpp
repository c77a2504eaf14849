#include "template/symbols.h"

#include <unordered_map>
#include <unordered_set>

namespace inferno::jinja {

struct Symbols::Event {
  enum class Kind : uint8_t { load, store, parameter, begin_branches, begin_branch, end_branch, end_branches };
  Kind kind;
  uint32_t name = 0;
};

struct Symbols::Block {
  Frame* frame = nullptr;
  Block* outer = nullptr;
  std::vector<Event> events;
  std::vector<std::unique_ptr<Block>> inner;
};

// What is known of names in one block, seen from a place in it. A branch of an `if` adds to the table before it.
struct Symbols::Table {
  const Table* outer = nullptr;              // of the block around this one
  const Table* before = nullptr;             // of this block, where the branch begins
  std::unordered_map<uint32_t, bool> names;  // name -> undefined at the beginning of the block
  std::unordered_set<uint32_t> stores;

  [[nodiscard]] bool has(uint32_t name) const {
    for (const Table* table = this; table != nullptr; table = table->before) {
      if (table->names.contains(name)) return true;
    }
    return false;
  }
  [[nodiscard]] bool outer_knows(uint32_t name) const {
    for (const Table* table = outer; table != nullptr; table = table->outer) {
      if (table->names.contains(name)) return true;
    }
    return false;
  }
  void load(uint32_t name) {
    if (!has(name) && !outer_knows(name)) names[name] = false;
  }
  void store(uint32_t name) {
    stores.insert(name);
    if (!has(name)) names[name] = !outer_knows(name);
  }
  // What only branches assign comes from outside where they do not.
  void merge(const Table& branch) {
    for (const auto& [name, undefined] : branch.names) {
      if (!names.contains(name)) names[name] = undefined && !branch.stores.contains(name);
    }
    stores.insert(branch.stores.begin(), branch.stores.end());
  }
};

Symbols::Symbols(Frame& root) : root_(std::make_unique<Block>()), current_(root_.get()) {
  root_->frame = &root;
}

Symbols::~Symbols() = default;

void Symbols::begin_block(Frame& frame) {
  auto block = std::make_unique<Block>();
  block->frame = &frame;
  block->outer = current_;
  Block* inner = block.get();
  current_->inner.push_back(std::move(block));
  current_ = inner;
}

void Symbols::end_block() {
  current_ = current_->outer;
}

void Symbols::capture() {
  for (Block* block = current_; block != nullptr && !block->frame->captured; block = block->outer) {
    block->frame->captured = true;
  }
}

void Symbols::load(uint32_t name) {
  current_->events.push_back({Event::Kind::load, name});
}

void Symbols::store(uint32_t name) {
  current_->events.push_back({Event::Kind::store, name});
}

void Symbols::parameter(uint32_t name) {
  current_->events.push_back({Event::Kind::parameter, name});
}

void Symbols::begin_branches() {
  current_->events.push_back({Event::Kind::begin_branches});
}

void Symbols::begin_branch() {
  current_->events.push_back({Event::Kind::begin_branch});
}

void Symbols::end_branch() {
  current_->events.push_back({Event::Kind::end_branch});
}

void Symbols::end_branches() {
  current_->events.push_back({Event::Kind::end_branches});
}

// Reads events up to the end of the branch, or all of them.
void Symbols::walk(const std::vector<Event>& events, size_t& at, Table& table) {
  std::vector<Table> branches;
  for (; at < events.size(); ++at) {
    const Event& event = events[at];
    switch (event.kind) {
      case Event::Kind::load:
        table.load(event.name);
        break;
      case Event::Kind::store:
        table.store(event.name);
        break;
      case Event::Kind::parameter:
        table.stores.insert(event.name);
        table.names[event.name] = false;
        break;
      case Event::Kind::begin_branches:
        branches.clear();
        break;
      case Event::Kind::begin_branch: {
        Table branch{.outer = table.outer, .before = &table};
        walk(events, ++at, branch);
        branches.push_back(std::move(branch));
        break;
      }
      case Event::Kind::end_branch:
        return;
      case Event::Kind::end_branches:
        for (const Table& branch : branches) table.merge(branch);
        break;
    }
  }
}

void Symbols::resolve(Block& block, const Table* outer) {
  Table table{.outer = outer};
  size_t at = 0;
  walk(block.events, at, table);
  for (const auto& [name, undefined] : table.names) {
    if (undefined) block.frame->missing.push_back(name);
  }
  for (const auto& inner : block.inner) resolve(*inner, &table);
}

void Symbols::resolve() {
  resolve(*root_, nullptr);
}

}  // namespace inferno::jinja
