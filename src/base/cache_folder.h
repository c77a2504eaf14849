// Where inferno keeps what it found out or fetched, between runs.
#pragma once

#include <string>

namespace inferno {

// $XDG_CACHE_HOME/inferno, or $HOME/.cache/inferno; empty when neither variable is a whole path.
[[nodiscard]] std::string cache_folder();

}  // namespace inferno
