// Any bytes as a model file: an Error, or a model that makes two tokens.
#include <cstddef>
#include <span>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "gguf/gguf.h"
#include "model/model_info.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferno;
  try {
    const GgufFile file = GgufFile::from_memory(std::as_bytes(std::span(data, size)), "fuzz");
    (void)inspect_model(file);
    Engine engine(file, {.backend = "scalar", .context = 8});
    (void)generate(engine, {.prompt = {0, 1}, .max_new_tokens = 2, .stop_at_end = false});
  } catch (const Error&) {
  }
  return 0;
}
