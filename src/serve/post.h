// How the threads of the server hand work to each other.
#pragma once

#include <functional>

namespace inferno::serve {

// Runs it later on a certain thread; from any thread.
using Post = std::function<void(std::function<void()>)>;

}  // namespace inferno::serve
