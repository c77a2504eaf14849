#include "backend/factory.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/select.h"
#include "backend/placement.h"
#include "backend/tracing.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/world.h"
#if defined(INFERNO_CUDA) || defined(INFERNO_METAL)
#include "backend/fallback.h"
#endif
#ifdef INFERNO_CUDA
#include "backend/cuda/cuda.h"
#endif
#ifdef INFERNO_METAL
#include "backend/metal/metal.h"
#endif

namespace inferno {
namespace {

using Maker = std::unique_ptr<Backend> (*)(const BackendOptions& options);

struct Entry {
  std::string_view name;
  Maker make;                     // null: known, but not in this build
  std::string_view missing = {};  // why, then
};

std::unique_ptr<Backend> make_scalar(const BackendOptions& options) {
  return std::make_unique<CpuBackend>("scalar", scalar_kernels(), nullptr, DType::f32, options.fused, options.ranks);
}

std::unique_ptr<Backend> make_simd(const BackendOptions& options) {
  return std::make_unique<CpuBackend>("simd", best_kernels(), nullptr, DType::bf16, options.fused, options.ranks);
}

// Ranks on one machine divide its CPUs, unless who started them did.
void share_cpus(const Topology& topology, const CpuLimits& limits, ThreadRequest& request) {
  const int ranks = detect_launch().local_size;
  const bool divided = limits.allowed.size() < topology.cpus.size();
  if (request.threads) return;
  if (ranks > 1 && !divided) {
    request.threads = std::max(1, available_cpu_count(limits) / ranks);
    request.threads_origin = "ranks on this machine";
  } else if (ranks == 1 && divided) {
    log(LogLevel::warn, "this rank may use {} of {} CPUs; started without being bound to cores it has all of them",
        limits.allowed.size(), topology.cpus.size());
  }
}

std::unique_ptr<Backend> make_parallel(const BackendOptions& options) {
  ThreadRequest request = options.placement;
  request.threads.reset();
  if (options.threads > 0) {
    request.threads = options.threads;
    request.threads_origin = "`threads`";
  }
  apply_environment(request, [](const char* name) -> const char* { return std::getenv(name); });
  const Topology topology = Topology::detect();
  const CpuLimits limits = detect_cpu_limits();
  if (options.ranks != nullptr) share_cpus(topology, limits, request);
  ThreadPlan plan = plan_threads(topology, limits, request);
  for (const std::string& warning : plan.warnings) log(LogLevel::warn, "{}", warning);
  auto pool = std::make_unique<ThreadPool>(
      ThreadPoolOptions{.threads = plan.threads, .cpus = std::move(plan.cpus), .uneven = plan.uneven});
  return std::make_unique<CpuBackend>("parallel", best_kernels(), std::move(pool), DType::bf16, options.fused,
                                      options.ranks);
}

#ifdef INFERNO_CUDA
// Layers that do not fit the GPU run on the CPU; those of a model that is split over ranks must fit.
std::unique_ptr<Backend> make_cuda(const BackendOptions& options) {
  return std::make_unique<FallbackBackend>(make_cuda_backend(options.ranks), [options] {
    if (options.ranks != nullptr) {
      fail(
          "this rank's part of the model does not fit the free memory of its GPU; use more ranks or GPUs, a smaller "
          "type or a shorter `context`");
    }
    return make_parallel(options);
  });
}
#else
constexpr Maker make_cuda = nullptr;
#endif

#ifdef INFERNO_METAL
// Layers that do not fit what the GPU may use run on the CPU.
std::unique_ptr<Backend> make_metal(const BackendOptions& options) {
  return std::make_unique<FallbackBackend>(make_metal_backend(), [options] { return make_parallel(options); });
}
#else
constexpr Maker make_metal = nullptr;
#endif

constexpr std::array<Entry, 5> kBackends = {{
    {"scalar", make_scalar},
    {"simd", make_simd},
    {"parallel", make_parallel},
    {"cuda", make_cuda, "this program was built without it (configure with -DINFERNO_CUDA=ON)"},
    {"metal", make_metal, "it is for Macs with Apple silicon, and this program was built without it"},
}};

std::string known_names() {
  std::string names;
  for (const std::string_view name : backend_names()) {
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

std::unique_ptr<Backend> create_one(std::string_view wanted, const BackendOptions& options) {
  for (const Entry& entry : kBackends) {
    if (entry.name != wanted) continue;
    if (entry.make == nullptr) {
      fail_usage("no backend \"{}\" here: {}; use `backend` {}", wanted, entry.missing, default_backend_name());
    }
    std::unique_ptr<Backend> made = entry.make(options);
    if (log_level() == LogLevel::trace) made = std::make_unique<TracingBackend>(std::move(made));
    return made;
  }
  const std::string_view meant = nearest(wanted, backend_names());
  fail_usage("unknown backend \"{}\" (supported: {}){}", printable(wanted), known_names(),
             meant.empty() ? "" : fmt::format("; did you mean \"{}\"?", meant));
}

}  // namespace

std::unique_ptr<Backend> create_backend(std::string_view choice, const BackendOptions& options) {
  PlacementSpec spec = parse_placement(choice);
  std::unique_ptr<Backend> main = create_one(spec.backend, options);
  if (spec.rules.empty()) return main;
  std::map<std::string, std::unique_ptr<Backend>> others;
  for (const PlacementRule& rule : spec.rules) {
    if (rule.backend != spec.backend && !others.contains(rule.backend)) {
      others.emplace(rule.backend, create_one(rule.backend, options));
    }
  }
  return std::make_unique<PlacementBackend>(std::move(main), std::move(spec), std::move(others));
}

std::string kernels_of([[maybe_unused]] std::string_view backend) {
#ifdef INFERNO_METAL
  if (backend == "metal") return metal_kernels_id();
#endif
  return "";
}

std::span<const std::string_view> backend_names() {
  static const auto kNames = [] {
    std::array<std::string_view, kBackends.size()> names;
    std::transform(kBackends.begin(), kBackends.end(), names.begin(), [](const Entry& entry) { return entry.name; });
    return names;
  }();
  return kNames;
}

std::string_view default_backend_name() {
  return "parallel";
}

}  // namespace inferno
