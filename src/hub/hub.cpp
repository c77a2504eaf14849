#include "hub/hub.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "hub/download.h"

namespace inferno::hub {
namespace {

constexpr const char* kDefaultEndpoint = "https://huggingface.co";
constexpr size_t kMaxFiles = 100'000;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : std::string(trim(value));
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f'); });
}

// A file of which the hub names size and hash; nothing of others, which cannot be checked.
std::optional<HubFile> parse_file(const nlohmann::json& entry) {
  const auto text = [](const nlohmann::json& in, const char* key) -> std::string {
    const auto found = in.find(key);
    return found != in.end() && found->is_string() ? found->get<std::string>() : "";
  };
  if (!entry.is_object()) return std::nullopt;
  HubFile file{text(entry, "rfilename"), 0, {}};
  const auto large = entry.find("lfs");
  if (!is_safe_path(file.path) || large == entry.end() || !large->is_object()) return std::nullopt;
  file.sha256 = text(*large, "sha256");
  const auto size = large->find("size");
  if (!is_sha256(file.sha256) || size == large->end() || !size->is_number_unsigned()) return std::nullopt;
  file.bytes = size->get<uint64_t>();
  return file;
}

std::vector<HubFile> select(const std::vector<HubFile>& files, const ModelName& name) {
  std::vector<std::string> paths;
  for (const HubFile& file : files) paths.push_back(file.path);
  std::vector<HubFile> chosen;
  for (const std::string& path : select_files(paths, name)) {
    chosen.push_back(*std::ranges::find(files, path, &HubFile::path));
  }
  return chosen;
}

}  // namespace

HubOptions hub_options_from_environment() {
  HubOptions options;
  options.endpoint = environment("HF_ENDPOINT");
  if (options.endpoint.empty()) options.endpoint = kDefaultEndpoint;
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  options.token = environment("HF_TOKEN");
  const std::string offline = environment("HF_HUB_OFFLINE");
  options.offline = !offline.empty() && offline != "0";
  return options;
}

std::vector<HubFile> parse_model_info(const std::string& json, const ModelName& name) {
  const nlohmann::json info = nlohmann::json::parse(json, nullptr, false);
  const auto list = info.is_object() ? info.find("siblings") : info.end();
  if (!info.is_object() || list == info.end() || !list->is_array() || list->size() > kMaxFiles) {
    fail("the hub's reply about {} is not what its API says", name.repository());
  }
  std::vector<HubFile> files;
  for (const nlohmann::json& entry : *list) {
    if (std::optional<HubFile> file = parse_file(entry)) files.push_back(std::move(*file));
  }
  return files;
}

std::string get_model(const ModelName& name, const ModelCache& cache, const HubOptions& options, bool check,
                      const OnFile& on_file) {
  if (!check || options.offline) {
    if (std::optional<std::string> path = cache.find(name)) return *path;
    if (options.offline) {
      fail("{} is not in \"{}\", and nothing may be fetched (`offline`)", name.repository(), cache.folder());
    }
  }
  const std::vector<HubFile> files = select(fetch_model_info(name, options), name);
  for (const HubFile& file : files) {
    download_file(name, file, cache.path_of(name, file.path), options, on_file);
  }
  return cache.path_of(name, files.front().path);
}

}  // namespace inferno::hub
