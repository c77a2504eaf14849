// A hub of models that speaks the Hugging Face hub's API: which files a model has, and getting them.
//
// A server is untrusted: its names, sizes and hashes are checked, and nothing it sends gets the name of a model before
// its SHA-256 is right. What a broken download left is kept and continued by the next one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hub/hub_name.h"
#include "hub/model_cache.h"
#include "inferno/types.h"

namespace inferno::hub {

struct HubOptions {
  std::string endpoint;  // https://huggingface.co
  std::string token;     // optional
  bool offline = false;  // only what is in the cache
  int retries = 4;       // of a transfer that broke
  int pause_ms = 1000;   // before the first retry; doubles
};
// HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, or what they stand for.
[[nodiscard]] HubOptions hub_options_from_environment();

struct HubFile {
  std::string path;  // in the repository
  uint64_t bytes = 0;
  std::string sha256;
};

// Called before a file is transferred; returns where its progress goes.
using OnFile = std::function<OnProgress(const HubFile& file)>;

// The path of the model, of a split one its first part; pulled when the cache lacks it. With `check` the hub is asked
// whether there is a newer one even then. Without libcurl in the build only the cache is looked at.
[[nodiscard]] std::string get_model(const ModelName& name, const ModelCache& cache, const HubOptions& options,
                                    bool check, const OnFile& on_file = {});

// What a server's reply about a model says of its files; exposed for tests. An Error when it is none.
[[nodiscard]] std::vector<HubFile> parse_model_info(const std::string& json, const ModelName& name);

}  // namespace inferno::hub
