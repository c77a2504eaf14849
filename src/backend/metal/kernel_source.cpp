// The text of the kernels as part of the program.
#include <string_view>

#include "backend/metal/device.h"
#include "base/embed_file.h"

INFERNO_EMBED_FILE(inferno_metal_source, INFERNO_METAL_SOURCE);

extern "C" {
extern const unsigned char inferno_metal_source_begin[];
extern const unsigned char inferno_metal_source_end[];
}

namespace inferno::metal {

std::string_view kernel_source() {
  const auto* begin = reinterpret_cast<const char*>(inferno_metal_source_begin);
  return {begin, static_cast<size_t>(inferno_metal_source_end - inferno_metal_source_begin)};
}

}  // namespace inferno::metal
