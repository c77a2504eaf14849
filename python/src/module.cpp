#include "module.h"

NB_MODULE(_inferno, m) {
  namespace py = inferno::python;
  m.doc() = "The C++ library, as python/inferno uses it; not for other callers.";
  nanobind::exception<inferno::Error>(m, "Error", PyExc_RuntimeError).doc() =
      "What went wrong, and what to do about it, in one line.";
  py::bind_options(m);
  py::bind_model(m);
  py::bind_tools(m);
}
