// What the parity suite runs: every op of the list at small and odd sizes, and the ops of a decoder at the sizes of
// real models.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/op_image.h"

namespace inferno::testing {

struct ParityCase {
  std::string name;
  bool timed = false;  // large enough that its speed means something
  std::function<OpImage()> make;
};

// All cases, or only the quick ones (seconds in total).
[[nodiscard]] std::vector<ParityCase> parity_cases(bool quick);

}  // namespace inferno::testing
