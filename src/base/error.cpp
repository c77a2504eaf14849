#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace inferno {

void check_failed(const char* file, int line, const char* condition) noexcept {
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed: this is a bug in inferno\n", file, line, condition);
  std::abort();
}

}  // namespace inferno
