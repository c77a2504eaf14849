// For the sources of the evaluator alone.
#pragma once

#include "template/evaluator.h"

namespace inferno::jinja {

class Evaluator::Block {
 public:
  Block(Evaluator& evaluator, const Frame& frame) : Block(evaluator, frame, evaluator.scope_) {}
  Block(Evaluator& evaluator, const Frame& frame, Scope* parent)
      : evaluator_(evaluator), outer_(evaluator.scope_), local_(parent) {
    if (frame.captured) {
      evaluator.run_.charge(sizeof(Scope));
      evaluator.scope_ = &evaluator.kept_.emplace_back(parent);
    } else {
      evaluator.scope_ = &local_;
    }
    for (const uint32_t name : frame.missing) {
      evaluator.scope_->set(name, Value::undefined(evaluator.program_.names[name]));
    }
  }
  ~Block() { evaluator_.scope_ = outer_; }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

 private:
  Evaluator& evaluator_;
  Scope* outer_;
  Scope local_;
};

class Evaluator::Capture {
 public:
  // Inlined, g++ 13 warns of a pointer that outlives what it points to; the destructor takes it back.
  [[gnu::noinline]] explicit Capture(Evaluator& evaluator)
      : evaluator_(evaluator), outer_(std::exchange(evaluator.out_, &text_)) {}
  ~Capture() { evaluator_.out_ = outer_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  [[nodiscard]] Value take() { return evaluator_.run_.text(std::move(text_)); }

 private:
  Evaluator& evaluator_;
  Text text_;
  Text* outer_;
};

}  // namespace inferno::jinja
