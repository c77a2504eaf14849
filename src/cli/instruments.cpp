#include "cli/instruments.h"

#include <fmt/core.h>

#include <cstdio>
#include <optional>

#include "base/file.h"
#include "base/standard_streams.h"
#include "comm/world.h"
#include "profile/profiling_backend.h"
#include "verify/check.h"

namespace inferno::cli {
namespace {

// Nothing is faster than its limit; a little more than all of it is the clock.
constexpr double kBeyondLimit = 1.02;

}  // namespace

struct Instruments::Parts {
  std::optional<Profile> profile;
  std::optional<TraceWriter> trace;
  std::optional<AtomicOutputFile> json;
  CheckingBackend* shadow = nullptr;  // owned by the engine
};

Instruments::Instruments() : parts_(std::make_unique<Parts>()) {}
Instruments::~Instruments() = default;

void Instruments::add_to(CLI::App& command) {
  command.add_flag("--profile", profile_,
                   "after the run: where the time went, and how near that is to the machine's limits");
  const CLI::Validator named([](const std::string& file) { return file.empty() ? "a file name is missing" : ""; }, "");
  command.add_option("--profile-json", profile_json_, "the profile as JSON into a file")->check(named);
  command.add_option("--trace", trace_, "every op of every thread into a file for ui.perfetto.dev")->check(named);
  command.add_option("--shadow", shadow_, "compute one op in N again on the scalar backend and compare")
      ->check(CLI::Range(int64_t{1}, INT64_MAX));
}

void Instruments::install(EngineOptions& options) {
  const bool wants_profile = profile_ || !profile_json_.empty();
  parts_ = std::make_unique<Parts>();
  if (!profile_json_.empty()) parts_->json.emplace(profile_json_);
  if (!trace_.empty())
    parts_->trace.emplace(trace_, options.backend.empty() ? std::string(default_backend_name()) : options.backend);
  if (!wants_profile && trace_.empty() && shadow_ == 0) return;
  const bool fused = options.backend_options.fused;
  options.decorate = [this, wants_profile, fused](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
    if (wants_profile) {
      parts_->profile.emplace(*backend);
    }
    if (shadow_ > 0) {
      const Numerics numerics = !fused                    ? Numerics::default_bodies
                                : backend->cpu_numerics() ? Numerics::cpu_kernels
                                                          : Numerics::definition;
      auto checking = std::make_unique<CheckingBackend>(
          std::move(backend), create_backend("scalar", {.fused = fused}),
          CheckOptions{.numerics = numerics, .every = shadow_, .exchanges = world().size() > 1},
          create_backend("scalar", {.fused = false}));
      parts_->shadow = checking.get();
      backend = std::move(checking);
    }
    if (wants_profile || parts_->trace) {
      backend = std::make_unique<ProfilingBackend>(std::move(backend), wants_profile ? &*parts_->profile : nullptr,
                                                   parts_->trace ? &*parts_->trace : nullptr);
    }
    return backend;
  };
}

void Instruments::finish() {
  if (profile_) print_stderr("\n{}", parts_->profile->report());
  if (parts_->profile && parts_->profile->most_of_limit() > kBeyondLimit) {
    const MachineLimits& before = parts_->profile->limits();
    const MachineLimits now = machine_limits(before.threads, Remeasure::keep_best);
    print_stderr(
        "\nlimits: this run reached {:.0f} % of them, so they were measured again: {:.1f} instead of {:.1f} GB/s, "
        "{:.0f} instead of {:.0f} GOP/s int8; run again for the right shares\n",
        100 * parts_->profile->most_of_limit(), now.read.back().gb_per_s, before.read.back().gb_per_s,
        now.multiply_gop_per_s(Multiply::int8), before.multiply_gop_per_s(Multiply::int8));
  }
  if (parts_->json) {
    parts_->json->write(parts_->profile->json());
    parts_->json->commit();
  }
  if (parts_->trace) parts_->trace->finish();
  if (parts_->shadow != nullptr) {
    const CheckingBackend& shadow = *parts_->shadow;
    print_stderr("\nshadow: {} ops computed again on the scalar backend, {}\n{}", shadow.checked(),
                 shadow.first_divergence() ? "some beyond their limits" : "all within their limits", shadow.report());
  }
}

}  // namespace inferno::cli
