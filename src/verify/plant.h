// Errors made on purpose, to see that checks find them.
//
// An op alone: what it wrote is falsified. An op of a group may have written nothing that can be seen: it gets a wrong
// argument, so that the error takes the way a wrong kernel's would, through everything the backend does with the group.
#pragma once

#include <map>
#include <memory>

#include "backend/op_image.h"

namespace inferno {

// Falsifies the first value the image's op wrote, by more than any limit allows.
void plant_error(OpImage& image);

// Arguments that make a backend's op wrong: its first matrix negated, or, without one, its first attribute changed.
class WrongArguments {
 public:
  explicit WrongArguments(Backend& backend) : backend_(backend) {}
  [[nodiscard]] OpRecord of(const OpRecord& record);

 private:
  class Change;
  [[nodiscard]] const Weight* negated(const Weight& original);

  Backend& backend_;
  std::map<const Weight*, std::unique_ptr<Weight>> weights_;
};

}  // namespace inferno
