// What is thrown when a rank is gone: nothing can be computed any more, by nobody's fault here.
#pragma once

#include "inferno/error.h"

namespace inferno {

class RankFailure final : public Error {
 public:
  using Error::Error;
};

}  // namespace inferno
