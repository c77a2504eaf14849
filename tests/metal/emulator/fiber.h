// Stacks of their own on one CPU thread, known to the sanitizers.
#pragma once

#include <cstddef>

namespace emulator {

struct Fiber;

// Fiber number `index`, ready to call `run` from its beginning; what it was doing before is forgotten.
Fiber* start_fiber(size_t index, void (*run)());
// Runs it until it leaves or returns.
void enter_fiber(Fiber* fiber);
// In a fiber: back to whoever entered it.
void leave_fiber();

// For ThreadSanitizer, which takes fibers for concurrent threads: what came before a release of `edge` happens before
// what follows an acquire of it.
void release_edge(void* edge);
void acquire_edge(void* edge);

}  // namespace emulator
