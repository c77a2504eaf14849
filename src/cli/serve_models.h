// The models of `inferno serve`: their names, what is known of them, and how they are loaded.
#pragma once

#include <string>
#include <vector>

#include "api/load_options.h"
#include "serve/served_model.h"

namespace inferno::cli {

struct NamedModel {
  std::string name;  // as clients know it
  std::string path;  // empty: the built-in model
};

// "PATH", whose name is that of the file, or "NAME=PATH" where no such file is there.
[[nodiscard]] NamedModel parse_named_model(const std::string& argument);

struct ModelSettings {
  LoadOptions load;
  std::string chat_template;      // what read_chat_template() returns
  bool measure = false;           // a profile of every model
  bool thinks = true;             // unless a request says otherwise
  std::string cache_folder = {};  // of pages that come back after a restart; empty: none
  uint64_t cache_bytes = 0;       // of its files
};

// Loads one that is served alone. Its file is read again when it comes back after it was unloaded.
[[nodiscard]] serve::ModelSource loaded_model(const NamedModel& model, const ModelSettings& settings);
// Reads what there is to know of a model that will be loaded on demand. An Error for a file that cannot be loaded, as
// far as that can be seen without its weights.
[[nodiscard]] serve::ModelSource model_on_demand(const NamedModel& model, const ModelSettings& settings);

}  // namespace inferno::cli
