#include "base/cache_folder.h"

#include <fmt/core.h>

#include <cstdlib>

namespace inferno {

std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return fmt::format("{}/inferno", cache);
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return fmt::format("{}/.cache/inferno", home);
  return "";
}

}  // namespace inferno
