// The parts of the module inferno._inferno: the library's calls as Python meets them; python/inferno gives them their
// public form. Everything that may take long releases Python's lock (the GIL).
#pragma once

#include <nanobind/nanobind.h>

#include "inferno/inferno.h"

// Of a record as a dictionary; the stubs show it.
#define INFERNO_DICTIONARY "dict[str, typing.Any]"

namespace inferno::python {

namespace nb = nanobind;

void bind_options(nb::module_& m);
void bind_model(nb::module_& m);
void bind_tools(nb::module_& m);

// A Python function as a progress callback, or None: called with the lock, which the work has released. Refers to it.
[[nodiscard]] OnProgress progress_to(const nb::object& function);

}  // namespace inferno::python
