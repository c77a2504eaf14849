#include "hub/model_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <ranges>
#include <system_error>
#include <utility>

#include "base/cache_folder.h"
#include "base/error.h"

namespace inferno::hub {
namespace {

namespace fs = std::filesystem;

bool is_complete_model(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.path().extension() == ".gguf" && entry.is_regular_file(ignored);
}

// Every regular file below a folder, as paths from there; links to folders are not followed.
std::vector<fs::directory_entry> files_below(const fs::path& folder) {
  std::vector<fs::directory_entry> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    files.push_back(*at);
  }
  std::ranges::sort(files, {}, [](const fs::directory_entry& entry) { return entry.path(); });
  return files;
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) fail("cannot remove \"{}\": {}", path.string(), error.message());
}

// Folders that became empty, up to the cache's own.
void remove_empty_folders(fs::path folder, const fs::path& stop) {
  std::error_code error;
  while (folder != stop && fs::is_empty(folder, error) && !error && fs::remove(folder, error)) {
    folder = folder.parent_path();
  }
}

}  // namespace

std::string default_cache_folder() {
  const char* own = std::getenv("INFERNO_MODELS");
  if (own != nullptr && *own != '\0') return own;
  if (const std::string cache = cache_folder(); !cache.empty()) return cache + "/models";
  fail("there is no folder for models: set INFERNO_MODELS to one");
}

ModelCache::ModelCache(std::string folder) : folder_(std::move(folder)) {
  while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
}

std::string ModelCache::path_of(const ModelName& name, const std::string& file) const {
  return fmt::format("{}/{}/{}/{}", folder_, name.owner, name.name, file);
}

std::vector<CachedFile> ModelCache::list() const {
  std::vector<CachedFile> result;
  for (const fs::directory_entry& entry : files_below(folder_)) {
    const fs::path relative = entry.path().lexically_relative(folder_);
    if (!is_complete_model(entry) || std::distance(relative.begin(), relative.end()) < 3) continue;
    const fs::path repository = *relative.begin() / *std::next(relative.begin());
    std::error_code ignored;
    result.push_back({repository.string(), relative.lexically_relative(repository).string(), entry.path().string(),
                      entry.file_size(ignored)});
  }
  return result;
}

std::vector<std::string> ModelCache::files_of(const ModelName& name) const {
  std::vector<std::string> files;
  const fs::path folder = fs::path(folder_) / name.owner / name.name;
  for (const fs::directory_entry& entry : files_below(folder)) {
    if (is_complete_model(entry)) files.push_back(entry.path().lexically_relative(folder).string());
  }
  return files;
}

std::optional<std::string> ModelCache::find(const ModelName& name) const {
  const std::vector<std::string> files = files_of(name);
  if (files.empty()) return std::nullopt;
  try {
    return path_of(name, select_files(files, name).front());
  } catch (const Error&) {
    return std::nullopt;  // parts that are missing, another type
  }
}

std::vector<CachedFile> ModelCache::remove(const ModelName& name) const {
  std::vector<std::string> wanted;
  if (!name.selector.empty()) wanted = select_files(files_of(name), name);
  const fs::path folder = fs::path(folder_) / name.owner / name.name;
  std::vector<CachedFile> gone;
  for (const fs::directory_entry& entry : files_below(folder)) {
    std::error_code ignored;
    if (!entry.is_regular_file(ignored)) continue;
    const std::string file = entry.path().lexically_relative(folder).string();
    const auto belongs = [&](const std::string& model) { return file == model || file.starts_with(model + "."); };
    if (!wanted.empty() && std::ranges::none_of(wanted, belongs)) continue;
    if (is_complete_model(entry)) {
      gone.push_back({name.repository(), file, entry.path().string(), entry.file_size(ignored)});
    }
    remove_file(entry.path());
  }
  const std::vector<fs::directory_entry> left = files_below(folder);
  for (const fs::directory_entry& entry : std::views::reverse(left)) remove_empty_folders(entry.path(), folder_);
  remove_empty_folders(folder, folder_);
  if (gone.empty()) fail("{} is not in \"{}\"", name.repository(), folder_);
  return gone;
}

}  // namespace inferno::hub
