// One rendering: its limits, and the objects it made.
//
// Every piece of work is paid for here: a step for each node that is evaluated and for each 64 bytes of text that are
// made or walked over, and bytes for each value that is made. Paying more than there is is a Failure, so a template
// that loops forever or grows without end stops. Bytes are counted when values are made and not given back when they
// go: the limit bounds the memory of a rendering from above.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "template/template.h"
#include "template/value.h"

namespace inferno::jinja {

class Run {
 public:
  Run(const TemplateLimits& limits, std::time_t now) : limits_(limits), now_(now) {}

  void step(uint64_t count = 1) {
    if (count > limits_.steps - steps_) fail_steps();
    steps_ += count;
  }
  // Before memory is taken.
  void charge(uint64_t bytes) {
    if (bytes > limits_.bytes - bytes_) fail_bytes();
    bytes_ += bytes;
    step(bytes / 64);
  }
  void check_output(size_t size) const {
    if (size > limits_.output) fail_output();
  }

  // A string value; its bytes are charged.
  [[nodiscard]] Value text(Text text, bool markup = false);
  [[nodiscard]] Value list(std::vector<Value> items, Sequence::Form form = Sequence::Form::list);
  // A generator of what `produce` appends. Python computes items when they are read: a Failure comes when its item is.
  [[nodiscard]] Value generator(const std::function<void(std::vector<Value>& items)>& produce);
  [[nodiscard]] Value dict(Dict dict);
  // An object that lives as long as the run.
  template <typename T, typename... Args>
  [[nodiscard]] T* make(Args&&... args) {
    charge(sizeof(T) + 64);
    auto owned = std::make_unique<T>(std::forward<Args>(args)...);
    T* made = owned.get();
    objects_.push_back(std::move(owned));
    return made;
  }

  [[nodiscard]] std::time_t now() const { return now_; }
  [[nodiscard]] int line() const { return line_; }
  void set_line(int line) { line_ = line; }

  // Nested evaluations, on the stack of the calling thread.
  class Nested {
   public:
    explicit Nested(Run& run) : run_(run) {
      if (++run_.depth_ > run_.limits_.depth) {
        --run_.depth_;
        fail_depth(run_.limits_.depth);
      }
    }
    ~Nested() { --run_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Run& run_;
  };

 private:
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_bytes() const;
  [[noreturn]] void fail_output() const;
  [[noreturn]] static void fail_depth(int limit);

  TemplateLimits limits_;
  std::time_t now_;
  uint64_t steps_ = 0;
  uint64_t bytes_ = 0;
  int depth_ = 0;
  int line_ = 1;
  std::vector<std::unique_ptr<Object>> objects_;
};

}  // namespace inferno::jinja
