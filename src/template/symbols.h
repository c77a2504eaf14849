// Which names are undefined when a block begins, although something outside has that name.
//
// jinja2 decides per block, before it runs, where each name of it comes from: a name that the block assigns to before
// it reads it is the block's own, and undefined until then. This only shows when an inner block reads it first. The
// parser reports what it meets in the order of the source; resolve() then fills in Frame::missing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "template/syntax.h"

namespace inferno::jinja {

class Symbols {
 public:
  explicit Symbols(Frame& root);
  ~Symbols();

  // A block inside the current one. When it ends the outer one goes on.
  void begin_block(Frame& frame);
  void end_block();
  void capture();  // the current block and those around it are kept by a macro

  void load(uint32_t name);
  void store(uint32_t name);
  void parameter(uint32_t name);
  // if: begin_branches, then begin_branch and end_branch for each, then end_branches.
  void begin_branches();
  void begin_branch();
  void end_branch();
  void end_branches();

  void resolve();

 private:
  struct Event;
  struct Block;
  struct Table;
  static void walk(const std::vector<Event>& events, size_t& at, Table& table);
  static void resolve(Block& block, const Table* outer);

  std::unique_ptr<Block> root_;
  Block* current_;
};

}  // namespace inferno::jinja
