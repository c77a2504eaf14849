// How the threads of the server hand work to each other.
#pragma once

#include <functional>

namespace inferno::serve {

// Runs it later on a certain thread; from any thread.
using Post = std::function<void(std::function<void()>)>;

struct Posts {
  Post loop;
  Post loop_later;  // some milliseconds later; from the loop
  Post worker;
  Post embedder;  // for what keeps a worker busy for whole steps of a model
};

}  // namespace inferno::serve
