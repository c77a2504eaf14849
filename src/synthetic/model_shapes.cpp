#include "synthetic/model_shapes.h"

#include <fmt/core.h>

#include <array>

#include "base/error.h"
#include "base/text.h"

namespace inferno {
namespace {

constexpr std::array<ModelShape, 13> kShapes = {{
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6F, 1e-6F, true, false},
    {"qwen3-1.7b", "qwen3", 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e6F, 1e-6F, true, false},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6F, 1e-6F, false, false},
    {"qwen2-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6F, 1e-6F, true, false},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5F, 1e-5F, true, true},
    // Qwen3-30B-A3B with 8 of its 48 layers.
    {"qwen3-30b-a3b-8l", "qwen3moe", 8, 2048, 768, 32, 4, 128, 151936, 40960, 1e6F, 1e-6F, false, false, 128, 8},
    {"tiny-moe", "qwen3moe", 2, 256, 256, 8, 4, 64, 1000, 2048, 1e6F, 1e-6F, true, false, 8, 3},
    {"qwen3.5-0.8b", "qwen35", 24,   1024,  3584, 8, 2,  256, 248320, 262144,
     1e7F,           1e-6F,    true, false, 0,    0, 64, 16,  16,     128},
    {"tiny-qwen3.5", "qwen35", 4, 256, 512, 4, 2, 64, 1000, 2048, 1e7F, 1e-6F, true, false, 0, 0, 16, 2, 4, 32},
    {"gemma-3-1b", "gemma3", 26, 1152, 6912, 4, 1, 256, 262144, 32768, 1e6F, 1e-6F, true, false, 0, 0, 0, 0, 0, 0, 512},
    {"llama-3-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 8192, 5e5F, 1e-5F, false, false},
    {"tiny-wide", "qwen3", 3, 1024, 2048, 16, 4, 64, 4000, 2048, 1e6F, 1e-6F, true, false},
    {"tiny", "qwen3", 2, 256, 512, 8, 4, 64, 1000, 2048, 1e6F, 1e-6F, true, false},
}};

}  // namespace

std::string model_shape_names() {
  std::string names;
  for (const ModelShape& shape : kShapes) names += fmt::format("{}{}", names.empty() ? "" : ", ", shape.name);
  return names;
}

const ModelShape& find_model_shape(std::string_view name) {
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return shape;
  }
  fail_usage("\"{}\" is not a known shape (known: {})", printable(name), model_shape_names());
}

}  // namespace inferno
