#include "engine/device_trust.h"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "backend/placement.h"
#include "base/cache_folder.h"
#include "base/content_hash.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/platform.h"
#include "verify/self_check.h"

namespace inferno {
namespace {

constexpr uint64_t kMemoryLimit = 4096;  // bytes of the file

bool is_remembered(const std::string& file, const std::string& what) {
  std::error_code error;
  if (file.empty() || !std::filesystem::is_regular_file(file, error)) return false;
  try {
    return read_text(file, kMemoryLimit) == what;
  } catch (const Error&) {
    return false;
  }
}

// An unwritable cache folder is no error: the device is tried again next time.
void remember(const std::string& file, const std::string& what) {
  if (file.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
  if (error) return;
  try {
    AtomicOutputFile out(file);
    out.write(what);
    out.commit();
  } catch (const Error& failure) {
    log(LogLevel::debug, "{}", failure.what());
  }
}

}  // namespace

std::string distrust(const DeviceTrial& trial) {
  std::unique_ptr<Backend> device = trial.make();
  ContentHash hash;
  for (const std::string& part : {trial.kernels, platform::system_build(), device->description()}) {
    hash.add(std::string_view(part));
  }
  const std::string key = fmt::format("{:016x}{:016x}\n", hash.value().high, hash.value().low);
  if (is_remembered(trial.memory, key)) return "";
  const SelfCheck check = self_check(*device, *create_backend("scalar", {.fused = false}), trial.ops);
  log(LogLevel::info, "{}: {} cases of the ops compared with their definitions", device->name(), check.cases);
  if (check.wrong.empty()) remember(trial.memory, key);
  return check.wrong;
}

std::unique_ptr<Backend> create_trusted_backend(std::string_view choice, const BackendOptions& options) {
  const PlacementSpec spec = parse_placement(choice);
  const std::string kernels = kernels_of(spec.backend);
  const char* wanted = std::getenv("INFERNO_DEVICE_CHECK");
  const bool off = wanted != nullptr && std::string_view(wanted) == "0";
  if (kernels.empty() || off) return create_backend(choice, options);
  const std::string folder = cache_folder();
  const std::string why = distrust({.make = [&] { return create_backend(spec.backend, options); },
                                    .kernels = kernels,
                                    .memory = folder.empty() ? "" : fmt::format("{}/{}.checked", folder, spec.backend),
                                    .ops = {}});
  if (why.empty()) return create_backend(choice, options);
  log(LogLevel::warn, "backend \"{}\" is not used here: {}; running on {} instead", spec.backend, why,
      default_backend_name());
  return create_backend(default_backend_name(), options);
}

}  // namespace inferno
