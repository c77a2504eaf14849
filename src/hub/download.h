// Getting things from a hub: download.cpp with libcurl, download_none.cpp without.
#pragma once

#include <string>
#include <vector>

#include "hub/hub.h"

namespace inferno::hub {

// The model's files of which the hub names a hash.
[[nodiscard]] std::vector<HubFile> fetch_model_info(const ModelName& name, const HubOptions& options);

// Makes `path` the file, unless it is already: continues what an earlier download left, and gives it its name only when
// its SHA-256 is right.
void download_file(const ModelName& name, const HubFile& file, const std::string& path, const HubOptions& options,
                   const OnFile& on_file);

}  // namespace inferno::hub
