#include "engine/builtin_model.h"

#include <unistd.h>

#include <span>
#include <utility>

#include "base/embed_file.h"
#include "base/error.h"

#ifdef INFERNO_BUILTIN_MODEL
// The linker places the file's bytes between these two symbols.
extern "C" {
extern const unsigned char inferno_builtin_model_begin[];
extern const unsigned char inferno_builtin_model_end[];
}
INFERNO_EMBED_FILE(inferno_builtin_model, INFERNO_BUILTIN_MODEL);
#endif

namespace inferno {

GgufFile open_builtin_model() {
#ifdef INFERNO_BUILTIN_MODEL
  const auto size = static_cast<size_t>(inferno_builtin_model_end - inferno_builtin_model_begin);
  return GgufFile::from_memory(std::as_bytes(std::span(inferno_builtin_model_begin, size)), kBuiltinModelPath);
#else
  fail("this build has no built-in model; name a .gguf file");
#endif
}

namespace {

ModelFinder& model_finder() {
  static ModelFinder finder;
  return finder;
}

}  // namespace

void set_model_finder(ModelFinder finder) {
  model_finder() = std::move(finder);
}

std::string find_model(const std::string& name) {
  if (!model_finder() || ::access(name.c_str(), F_OK) == 0) return name;
  std::string path = model_finder()(name);
  return path.empty() ? name : path;
}

AnyModelFile open_model(const std::string& path) {
  return path.empty() ? AnyModelFile(open_builtin_model()) : AnyModelFile::open(find_model(path));
}

}  // namespace inferno
