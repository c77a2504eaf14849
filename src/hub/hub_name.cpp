#include "hub/hub_name.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace inferno::hub {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr size_t kMaxNamePart = 96;
constexpr size_t kMaxPath = 512;

bool is_name_part(std::string_view part) {
  if (part.empty() || part.size() > kMaxNamePart || part.front() == '.' || part.front() == '-') return false;
  return std::ranges::all_of(
      part, [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-' || c == '+'; });
}

std::string lower(std::string_view text) {
  std::string result;
  for (const char c : text) result.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  return result;
}

// Whether the type is a word of the file's name: "q4_k" is none of "model-q4_k_m.gguf".
bool has_type(std::string_view file, std::string_view type) {
  const std::string name = lower(file);
  const std::string word = lower(type);
  const auto inside = [&](size_t at) {
    return at < name.size() && (std::isalnum(static_cast<unsigned char>(name[at])) != 0 || name[at] == '_');
  };
  for (size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
    if (!(at > 0 && inside(at - 1)) && !inside(at + word.size())) return true;
  }
  return false;
}

// Files that are no language models of their own.
bool is_model(std::string_view file) {
  const std::string name = lower(file);
  return name.ends_with(kSuffix) && name.find("mmproj") == std::string::npos &&
         name.find("imatrix") == std::string::npos;
}

// Models by their name, each with all its files in order.
using Models = std::map<std::string, std::vector<std::string>>;

Models group(std::span<const std::string> files) {
  Models models;
  for (const std::string& file : files) {
    if (!is_model(file) || !is_safe_path(file)) continue;
    const std::optional<Part> part = parse_part(file);
    models[part ? part->stem : file].push_back(file);
  }
  for (auto& [stem, parts] : models) std::ranges::sort(parts);
  return models;
}

std::string list_of(const Models& models) {
  constexpr size_t kMost = 12;
  std::string text;
  size_t count = 0;
  for (const auto& [stem, parts] : models) {
    if (++count > kMost) return text + fmt::format(" and {} more", models.size() - kMost);
    text += fmt::format("{}{}", text.empty() ? "" : ", ", printable(parts.front()));
  }
  return text;
}

std::vector<std::string> whole(std::vector<std::string> files, const ModelName& name) {
  const std::optional<Part> first = parse_part(files.front());
  if (first && static_cast<int>(files.size()) != first->count) {
    fail("{} has {} of the {} parts of {}", name.repository(), files.size(), first->count, printable(files.front()));
  }
  return files;
}

}  // namespace

std::optional<ModelName> parse_name(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  ModelName result{std::string(text.substr(0, slash)), {}, {}};
  std::string_view rest = text.substr(slash + 1);
  const size_t colon = rest.find(':');
  if (colon != std::string_view::npos) {
    result.selector = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (!is_safe_path(result.selector)) return std::nullopt;
  } else if (rest.ends_with(kSuffix)) {
    return std::nullopt;  // a file in a folder
  }
  result.name = rest;
  if (!is_name_part(result.owner) || !is_name_part(result.name)) return std::nullopt;
  return result;
}

bool is_safe_path(std::string_view path) {
  if (path.size() > kMaxPath) return false;
  while (true) {
    const size_t slash = path.find('/');
    if (!is_name_part(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

std::optional<Part> parse_part(std::string_view file) {
  // stem-00001-of-00003.gguf
  constexpr size_t kTail = 20;
  if (file.size() <= kTail || !file.ends_with(kSuffix)) return std::nullopt;
  const std::string_view tail = file.substr(file.size() - kTail);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
  const std::optional<int64_t> number = parse_int(tail.substr(1, 5));
  const std::optional<int64_t> count = parse_int(tail.substr(10, 5));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  return Part{std::string(file.substr(0, file.size() - kTail)), static_cast<int>(*number), static_cast<int>(*count)};
}

std::vector<std::string> select_files(std::span<const std::string> files, const ModelName& name) {
  const Models models = group(files);
  if (models.empty()) fail("{} has no .gguf files", name.repository());
  if (name.selector.ends_with(kSuffix)) {
    for (const auto& [stem, parts] : models) {
      if (std::ranges::find(parts, name.selector) != parts.end()) return whole(parts, name);
    }
    fail("{} has no file {} (it has {})", name.repository(), name.selector, list_of(models));
  }
  const auto with_type = [&](std::string_view type) {
    Models matching;
    for (const auto& [stem, parts] : models) {
      if (has_type(parts.front(), type)) matching.emplace(stem, parts);
    }
    return matching;
  };
  Models fitting = models;
  if (!name.selector.empty()) {
    fitting = with_type(name.selector);
    if (fitting.empty())
      fail("{} has no file of type {} (it has {})", name.repository(), name.selector, list_of(models));
  } else if (models.size() > 1) {
    for (const char* usual : {"Q4_K_M", "Q8_0"}) {
      fitting = with_type(usual);
      if (!fitting.empty()) break;
    }
    if (fitting.empty()) fitting = models;
  }
  if (fitting.size() > 1) {
    fail("{} has several models that fit; add one as {}:FILE ({})", name.repository(), name.repository(),
         list_of(fitting));
  }
  return whole(fitting.begin()->second, name);
}

}  // namespace inferno::hub
