// The folder of models that were pulled from a hub: FOLDER/ORG/NAME/FILE.gguf, and beside each file its SHA-256 in
// FILE.gguf.sha256. A file is complete and was checked when it has its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hub/hub_name.h"

namespace inferno::hub {

// $INFERNO_MODELS, else inferno/models in $XDG_CACHE_HOME or ~/.cache. An Error when none of them is known.
[[nodiscard]] std::string default_cache_folder();

struct CachedFile {
  std::string repository;  // ORG/NAME
  std::string file;        // as on the hub
  std::string path;
  uint64_t bytes = 0;
};

class ModelCache {
 public:
  explicit ModelCache(std::string folder);

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string path_of(const ModelName& name, const std::string& file) const;
  // All complete files, sorted; none when there is no folder.
  [[nodiscard]] std::vector<CachedFile> list() const;
  // The first file of the model that the name means, when all of it is here.
  [[nodiscard]] std::optional<std::string> find(const ModelName& name) const;
  // What `name` means, or all of ORG/NAME without a selector; unfinished downloads of it too. Returns what is gone; an
  // Error when there is nothing.
  std::vector<CachedFile> remove(const ModelName& name) const;

 private:
  [[nodiscard]] std::vector<std::string> files_of(const ModelName& name) const;

  std::string folder_;
};

}  // namespace inferno::hub
