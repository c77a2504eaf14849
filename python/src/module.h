// The parts of the module inferno._inferno: the library's calls as Python meets them; python/inferno gives them their
// public form. Everything that may take long releases Python's lock (the GIL).
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>

#include "inferno/inferno.h"

// Of a record as a dictionary; the stubs show it.
#define INFERNO_DICTIONARY "dict[str, typing.Any]"

namespace inferno::python {

namespace nb = nanobind;

// Without Python's lock while it lives. Whoever takes the lock again when the interpreter has begun to end is ended
// there and then, which C++ does not survive: the interpreter waits until nobody is inside before it ends.
class Released {
 public:
  Released() = default;
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

  // Threads that are without the lock now.
  [[nodiscard]] static int inside() { return count_.load(std::memory_order_relaxed); }
  // In a child of fork(), which has none of its parent's threads.
  static void forget() { count_.store(0, std::memory_order_relaxed); }

 private:
  struct Counted {
    Counted() { count_.fetch_add(1, std::memory_order_relaxed); }
    ~Counted() { count_.fetch_sub(1, std::memory_order_relaxed); }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
  };
  static inline std::atomic<int> count_ = 0;

  Counted counted_;  // until the lock was taken again
  nb::gil_scoped_release released_;
};

void bind_options(nb::module_& m);
void bind_model(nb::module_& m);
void bind_tools(nb::module_& m);

// A Python function as a progress callback, or None: called with the lock, which the work has released. Refers to it.
[[nodiscard]] OnProgress progress_to(const nb::object& function);

}  // namespace inferno::python
