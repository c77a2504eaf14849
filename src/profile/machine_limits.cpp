#include "profile/machine_limits.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace inferno {
namespace {

using Json = nlohmann::json;

// Incremented whenever the measurement changes: older figures are not comparable.
constexpr int kFileVersion = 4;
// A machine that is never quiet is not measured forever.
constexpr int kMostMeasurements = 4;

Json to_json(const MachineLimits& limits) {
  Json read = Json::array();
  for (const ReadBandwidth& r : limits.read) read.push_back({r.working_set, r.gb_per_s, r.streams});
  return {{"cpu", limits.cpu},
          {"isa", limits.isa},
          {"threads", limits.threads},
          {"measurements", limits.measurements},
          {"disturbed", limits.disturbed},
          {"read", read},
          {"multiply", limits.multiply}};
}

MachineLimits from_json(const Json& json) {
  MachineLimits limits;
  limits.cpu = json.at("cpu").get<std::string>();
  limits.isa = json.at("isa").get<std::string>();
  limits.threads = json.at("threads").get<int>();
  limits.measurements = json.at("measurements").get<int>();
  limits.disturbed = json.at("disturbed").get<bool>();
  for (const Json& r : json.at("read")) limits.read.push_back({r.at(0), r.at(1), r.at(2)});
  limits.multiply = json.at("multiply").get<std::array<double, kMultiplyKinds>>();
  if (limits.read.empty()) throw std::runtime_error("no read bandwidth");
  for (const ReadBandwidth& r : limits.read) {
    if (!(r.gb_per_s > 0) || !(r.working_set > 0)) throw std::runtime_error("no read bandwidth");
  }
  for (const double peak : limits.multiply) {
    if (!(peak > 0)) throw std::runtime_error("no multiply peak");
  }
  return limits;
}

// All entries of the file that can be used; a missing or damaged file has none.
std::vector<MachineLimits> read_file(const std::string& path) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 20;
  std::vector<MachineLimits> entries;
  try {
    const InputFile file(path);  // anything but a regular file, a pipe for example, has none
    if (file.size() > kMostBytes) fail("\"{}\" is too long", path);
    std::string text(file.size(), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(text)));
    const Json json = Json::parse(text);
    if (json.at("version") != kFileVersion) return {};
    for (const Json& entry : json.at("limits")) entries.push_back(from_json(entry));
  } catch (const std::exception& error) {
    log(LogLevel::debug, "machine limits will be measured: {}", error.what());
    return {};
  }
  return entries;
}

void write_file(const std::string& path, const std::vector<MachineLimits>& entries) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) return;  // a pipe would wait for a reader
  Json json = {{"version", kFileVersion}, {"limits", Json::array()}};
  for (const MachineLimits& entry : entries) json["limits"].push_back(to_json(entry));
  const std::string folder = path.substr(0, path.find_last_of('/'));
  ::mkdir(folder.substr(0, folder.find_last_of('/')).c_str(), 0755);
  ::mkdir(folder.c_str(), 0755);
  try {
    AtomicOutputFile file(path);
    file.write(json.dump(1));
    file.commit();
  } catch (const Error& error) {
    log(LogLevel::debug, "machine limits cannot be stored: {}", error.what());
  }
}

}  // namespace

double MachineLimits::read_gb_per_s(double working_set) const {
  if (working_set <= read.front().working_set) return read.front().gb_per_s;
  for (size_t i = 1; i < read.size(); ++i) {
    const ReadBandwidth& a = read[i - 1];
    const ReadBandwidth& b = read[i];
    if (working_set > b.working_set) continue;
    const double part = std::log(working_set / a.working_set) / std::log(b.working_set / a.working_set);
    return a.gb_per_s + (b.gb_per_s - a.gb_per_s) * part;
  }
  return read.back().gb_per_s;
}

double MachineLimits::least_us(const OpCost& cost, double working_set) const {
  if (!known()) return 0;
  const double moving =
      cost.stream_bytes() / read_gb_per_s(working_set) + cost.activation_bytes / read.front().gb_per_s;
  return std::max(moving, cost.operations / multiply_gop_per_s(cost.multiply)) / 1e3;
}

MachineLimits better_of(const MachineLimits& a, const MachineLimits& b) {
  MachineLimits best = a;
  for (size_t i = 0; i < best.read.size() && i < b.read.size(); ++i) {
    if (b.read[i].gb_per_s > best.read[i].gb_per_s) best.read[i] = b.read[i];
  }
  for (size_t i = 0; i < best.multiply.size(); ++i) best.multiply[i] = std::max(best.multiply[i], b.multiply[i]);
  best.disturbed = a.disturbed && b.disturbed;
  best.measurements = a.measurements + b.measurements;
  return best;
}

MachineLimits machine_limits(int threads, Remeasure again, MachineLimits (*measure)(int threads)) {
  const std::string path = machine_limits_file();
  std::vector<MachineLimits> entries = path.empty() ? std::vector<MachineLimits>() : read_file(path);
  const std::string cpu = cpu_name();
  const std::string isa = cpu_isa();
  std::erase_if(entries, [&](const MachineLimits& entry) { return entry.cpu != cpu || entry.isa != isa; });
  const auto kept = std::find_if(entries.begin(), entries.end(),
                                 [&](const MachineLimits& entry) { return entry.threads == threads; });
  if (kept != entries.end() && again == Remeasure::when_needed &&
      (!kept->disturbed || kept->measurements >= kMostMeasurements)) {
    return *kept;
  }
  MachineLimits limits = measure(threads);
  if (kept == entries.end()) {
    entries.push_back(limits);
  } else {
    if (again != Remeasure::afresh) limits = better_of(*kept, limits);
    *kept = limits;
  }
  if (!path.empty()) write_file(path, entries);
  return limits;
}

MachineLimits limits_of(Backend& backend) {
  const std::optional<DeviceRates> device = backend.device_rates();
  if (!device) return backend.cpu_numerics() ? machine_limits(backend.workers()) : MachineLimits{};
  MachineLimits limits;
  limits.cpu = backend.description();
  limits.read = {{.working_set = 0, .gb_per_s = device->read_gb, .streams = 1}};
  const auto rate = [&](Multiply kind) -> double& { return limits.multiply[static_cast<size_t>(kind)]; };
  rate(Multiply::f32) = device->f32_gop;
  rate(Multiply::f16) = device->f16_gop;
  rate(Multiply::bf16) = device->bf16_gop;
  rate(Multiply::int8) = device->quantized_gop;
  return limits;
}

std::string machine_limits_file() {
  const std::string cache = cache_folder();
  return cache.empty() ? "" : cache + "/limits.json";
}

}  // namespace inferno
