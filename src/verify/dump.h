// An op or a group of ops in a file: what verify leaves when it finds a divergence, and --replay runs again.
//
//   "INFEROP2", u64 length of the head, u64 checksum of all that follows; the head as JSON; then the memory blocks and
//   the weights' bytes, one after another, as the head lists them.
#pragma once

#include <string>

#include "backend/op_image.h"

namespace inferno {

struct DumpInfo {
  std::string model;   // what the op was recorded with (see model_identity)
  std::string tested;  // backend choices of the run
  std::string reference;
  bool fused = true;
  int layer = -1;
};

// The image must own its weights.
void write_dump(const std::string& path, const OpImage& image, const DumpInfo& info);

struct Dump {
  OpImage image;
  DumpInfo info;
};
// A file that is no dump, damaged, or of an unknown op is an Error.
[[nodiscard]] Dump read_dump(const std::string& path);

}  // namespace inferno
