// Plain data as Python's own: structs become dictionaries, lists lists, an empty optional None.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "inferno/inferno.h"

namespace inferno::python {

namespace nb = nanobind;

// Bytes that are no UTF-8 become replacement characters.
[[nodiscard]] inline nb::object text(std::string_view bytes) {
  PyObject* made = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

[[nodiscard]] nb::object to_python(const ModelInfo& info);
[[nodiscard]] nb::object to_python(const QuantizeReport& report);
[[nodiscard]] nb::object to_python(const ModelPlan& plan);
[[nodiscard]] nb::object to_python(const VerifyReport& report);
[[nodiscard]] nb::object to_python(const ProfileReport& report);
[[nodiscard]] nb::object to_python(const BenchRow& row);
[[nodiscard]] nb::object to_python(const EngineStats& stats);
[[nodiscard]] nb::object to_python(const GenerateResult& result);
[[nodiscard]] nb::object to_python(const SamplingSettings& settings);

}  // namespace inferno::python
