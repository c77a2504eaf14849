#include "base/error.h"
#include "hub/download.h"

namespace inferno::hub {

std::vector<HubFile> fetch_model_info(const ModelName& name, const HubOptions& /*options*/) {
  fail("this build cannot fetch {}: it was made without libcurl; name a .gguf file", name.repository());
}

void download_file(const ModelName& name, const HubFile& /*file*/, const std::string& /*path*/,
                   const HubOptions& options, const OnFile& /*on_file*/) {
  (void)fetch_model_info(name, options);
}

}  // namespace inferno::hub
