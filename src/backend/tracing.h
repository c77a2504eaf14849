// A decorator that prints every op as it finishes:
//
//   [PARALLEL] [linear] (x=f32[1,1024], w=q8_0[3072,1024]) 82.4us step 3 layer 7
//
// An op inside a default body has "-> " in front for every level and comes before the op it is part of. The backend is
// synchronized around each op, so times are true, but a step is no longer one piece and groups of ops are not fused.
// Nothing is printed while planning.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backend/decorator.h"

namespace inferno {

class TracingBackend final : public BackendDecorator {
 public:
  using Sink = std::function<void(const std::string& line)>;
  // Lines are log messages of level trace when no sink is given.
  explicit TracingBackend(std::unique_ptr<Backend> inner, Sink sink = {});

  void begin_step(StepMode mode) override;

#define OP(name, Args) void name(const Args& args) override;
#include "backend/op_list.inc"

 private:
  template <typename Args>
  void trace(const Args& args);

  Sink sink_;
  std::string label_;  // the backend's name in capitals
  bool planning_ = false;
  int64_t step_ = -1;
  int layer_ = -1;  // of the latest op with weights
  int depth_ = 0;
};

}  // namespace inferno
