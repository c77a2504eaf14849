#include "hf/any_model_file.h"

#include <sys/stat.h>

namespace inferno {

AnyModelFile AnyModelFile::open(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return AnyModelFile(HfFolder::open(path));
  return AnyModelFile(GgufFile::open(path));
}

}  // namespace inferno
