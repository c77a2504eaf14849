#include "engine/builtin_model.h"

#include <span>

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
  return GgufFile::from_memory(std::as_bytes(std::span(inferno_builtin_model_begin, size)), "built-in model");
#else
  fail("this build has no built-in model; name a .gguf file");
#endif
}

GgufFile open_model(const std::string& path) {
  return path.empty() ? open_builtin_model() : GgufFile::open(path);
}

}  // namespace inferno
