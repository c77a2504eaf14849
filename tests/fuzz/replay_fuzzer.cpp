// Any head and memory as a replay file whose checksum is right: an Error, or a run that stays in its own memory. The
// input is a replay file without its first 24 bytes, which are made here; the head ends at the first zero byte.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>

#include "backend/factory.h"
#include "base/error.h"
#include "verify/check.h"
#include "verify/dump.h"

namespace {

// A file in memory that has a name.
const std::string& scratch_path() {
  static const std::string path = "/proc/self/fd/" + std::to_string(::memfd_create("replay", 0));
  return path;
}

void write_replay(const uint8_t* data, size_t size) {
  uint64_t checksum = 0xcbf29ce484222325ULL;
  const uint64_t head_bytes = static_cast<uint64_t>(std::find(data, data + size, 0) - data);
  std::string rest(reinterpret_cast<const char*>(data), head_bytes);
  if (head_bytes < size) rest.append(reinterpret_cast<const char*>(data) + head_bytes + 1, size - head_bytes - 1);
  for (const char byte : rest) checksum = (checksum ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  std::ofstream out(scratch_path(), std::ios::binary | std::ios::trunc);
  out << "INFEROP2";
  out.write(reinterpret_cast<const char*>(&head_bytes), sizeof head_bytes);
  out.write(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  out << rest;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferno;
  write_replay(data, size);
  try {
    const Dump dump = read_dump(scratch_path());
    (void)check_image(dump.image, create_backend("simd"), create_backend("scalar"), Numerics::cpu_kernels);
  } catch (const Error&) {
  }
  return 0;
}
