#include "module.h"

NB_MODULE(_inferno, m) {
  namespace py = inferno::python;
  // Threads that the interpreter leaves behind at its end hold what they used; that is no mistake to report to users.
  nanobind::set_leak_warnings(false);
  m.doc() = "The C++ library, as python/inferno uses it; not for other callers.";
  nanobind::exception<inferno::Error>(m, "Error", PyExc_RuntimeError).doc() =
      "What went wrong, and what to do about it, in one line.";
  py::bind_options(m);
  py::bind_model(m);
  py::bind_tools(m);
}
