#include "backend/factory.h"

#include <array>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/select.h"
#include "base/error.h"
#include "base/text.h"

namespace inferno {
namespace {

using Maker = std::unique_ptr<Backend> (*)(const BackendOptions& options);

struct Entry {
  std::string_view name;
  Maker make;  // null: known, but not in this build
};

std::unique_ptr<Backend> make_scalar(const BackendOptions& options) {
  return std::make_unique<CpuBackend>("scalar", scalar_kernels(), nullptr, DType::f32, options.fused);
}

constexpr std::array<Entry, 5> kBackends = {{
    {"scalar", make_scalar},
    {"simd", nullptr},
    {"parallel", nullptr},
    {"cuda", nullptr},
    {"metal", nullptr},
}};

std::string known_names() {
  std::string names;
  for (const Entry& entry : kBackends) {
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

}  // namespace

std::unique_ptr<Backend> create_backend(std::string_view name, const BackendOptions& options) {
  const std::string_view wanted = trim(name);
  for (const Entry& entry : kBackends) {
    if (entry.name != wanted) continue;
    if (entry.make == nullptr) fail_usage("backend \"{}\" is not built yet; use --backend scalar", wanted);
    return entry.make(options);
  }
  fail_usage("unknown backend \"{}\" (supported: {})", printable(wanted), known_names());
}

std::string_view default_backend_name() {
  return "scalar";
}

}  // namespace inferno
