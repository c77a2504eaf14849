// Makes backends by name. factory.cpp alone knows every concrete backend.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "threading/thread_plan.h"

namespace inferno {

class Communicator;

struct BackendOptions {
  int threads = 0;          // 0: INFERNO_THREADS, OMP_NUM_THREADS, or the default width; scalar and simd always use one
  ThreadRequest placement;  // where threads run; its own count is not looked at
  bool fused = true;        // false: fused ops run their default bodies, made of primitives
  Communicator* ranks = nullptr;  // where a model is split over several; outlives the backend
};

// `choice` is a name, or a name and rules for single ops (placement.h). Names are trimmed; an unknown one is a usage
// Error that lists the known ones. At the log level trace the backend logs its ops (tracing.h).
[[nodiscard]] std::unique_ptr<Backend> create_backend(std::string_view choice, const BackendOptions& options = {});
// Of a backend whose kernels the user's system compiles: text that changes with them. "" of others.
[[nodiscard]] std::string kernels_of(std::string_view backend);
// All known names, those not in this build included.
[[nodiscard]] std::span<const std::string_view> backend_names();
// The best one that is built in; what the command line defaults to.
[[nodiscard]] std::string_view default_backend_name();

}  // namespace inferno
