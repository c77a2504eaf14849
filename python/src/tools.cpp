// What one does with models besides running them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "module.h"
#include "records.h"

namespace inferno::python {
namespace {

// Computes without the lock, then makes Python's objects with it.
template <typename Function>
nb::object report(const Function& compute) {
  auto made = [&] {
    const Released released;
    return compute();
  }();
  return to_python(made);
}

}  // namespace

OnProgress progress_to(const nb::object& function) {
  if (function.is_none()) return {};
  return [&function](uint64_t done, uint64_t total) {
    const nb::gil_scoped_acquire lock;
    function(done, total);
  };
}

void bind_tools(nb::module_& m) {
  nb::class_<BenchOptions>(m, "BenchOptions", "What is measured; see inferno.bench.")
      .def(nb::init<>())
      .def_rw("prompt", &BenchOptions::prompt)
      .def_rw("generate", &BenchOptions::generate)
      .def_rw("depth", &BenchOptions::depth)
      .def_rw("batches", &BenchOptions::batches)
      .def_rw("repeat", &BenchOptions::repeat)
      .def_rw("lookup", &BenchOptions::lookup)
      .def_rw("max_draft", &BenchOptions::max_draft);
  nb::class_<QuantizeOptions>(m, "QuantizeOptions", "See inferno.quantize.")
      .def(nb::init<>())
      .def_rw("threads", &QuantizeOptions::threads)
      .def_rw("imatrix", &QuantizeOptions::imatrix)
      .def_rw("output_type", &QuantizeOptions::output_type)
      .def_rw("pure", &QuantizeOptions::pure)
      .def(
          "add_tensor_type",
          [](QuantizeOptions& o, const std::string& pattern, const std::string& type) {
            o.tensor_types.push_back({.pattern = pattern, .type = type});
          },
          nb::arg("pattern"), nb::arg("type"), "The type of tensors whose name matches a regular expression.");
  m.def("version", &version, "Of the library.");
  m.def("threads_inside", &Released::inside, "How many threads compute or wait without Python's lock now.");
  m.def("forget_threads", &Released::forget, "In a child of fork(), which has none of its parent's threads.");
  m.def(
      "inspect", [](const std::string& path) { return report([&] { return inspect_model(path); }); },
      nb::sig("def inspect(path: str) -> " INFERNO_DICTIONARY), "See inferno.inspect.");
  m.def(
      "plan",
      [](const std::string& path, const LoadOptions& load, int32_t prompt_tokens, int32_t depth) {
        return report([&] { return plan_model(path, load, {.prompt_tokens = prompt_tokens, .depth = depth}); });
      },
      nb::sig("def plan(path: str, load: LoadOptions, prompt_tokens: int, depth: int) -> " INFERNO_DICTIONARY),
      "See inferno.plan.");
  m.def(
      "quantize",
      [](const std::string& input, const std::string& output, const std::string& type, const QuantizeOptions& options,
         const nb::object& on_progress) {
        QuantizeOptions with_progress = options;
        with_progress.on_progress = progress_to(on_progress);
        return report([&] { return quantize_model(input, output, type, with_progress); });
      },
      nb::arg("input"), nb::arg("output"), nb::arg("type"), nb::arg("options"), nb::arg("on_progress").none(),
      nb::sig("def quantize(input: str, output: str, type: str, options: QuantizeOptions, on_progress: object) "
              "-> " INFERNO_DICTIONARY),
      "See inferno.quantize.");
  m.def(
      "verify",
      [](const std::string& path, const LoadOptions& load, const Prompt& prompt, const std::string& against,
         int32_t tokens_after, const std::string& plant) {
        return report([&] {
          return verify_model(path, load,
                              {.against = against, .prompt = prompt, .tokens = tokens_after, .plant = plant});
        });
      },
      nb::sig("def verify(path: str, load: LoadOptions, prompt: Prompt, against: str, tokens: int, plant: str) "
              "-> " INFERNO_DICTIONARY),
      "See inferno.verify.");
  m.def(
      "bench",
      [](const std::string& path, const LoadOptions& load, const BenchOptions& what) {
        std::vector<BenchRow> rows;
        {
          const Released released;
          rows = bench_model(path, load, what);
        }
        nb::list made;
        for (const BenchRow& row : rows) made.append(to_python(row));
        return made;
      },
      nb::sig("def bench(path: str, load: LoadOptions, what: BenchOptions) -> list[" INFERNO_DICTIONARY "]"),
      "See inferno.bench.");
}

}  // namespace inferno::python
