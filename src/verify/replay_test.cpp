// Replay files as an attacker would write them: every number of the head and every index wrong, the checksum right.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "backend/factory.h"
#include "support/sanitized.h"
#include "verify/check.h"
#include "verify/dump.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kPreamble = 24;  // magic, length of the head, checksum

std::string scratch_path(const char* name) {
  return (std::filesystem::temp_directory_path() / (std::string(name) + std::to_string(::getpid()))).string();
}

struct Parts {
  Json head;
  std::string memory;
};

Parts read_parts(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  uint64_t head_bytes = 0;
  std::memcpy(&head_bytes, bytes.data() + 8, sizeof head_bytes);
  return {Json::parse(bytes.substr(kPreamble, head_bytes)), bytes.substr(kPreamble + head_bytes)};
}

void write_parts(const std::string& path, const Json& head, const std::string& memory) {
  const std::string rest = head.dump() + memory;
  uint64_t checksum = 0xcbf29ce484222325ULL;
  for (const char byte : rest) checksum = (checksum ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  const uint64_t head_bytes = rest.size() - memory.size();
  std::ofstream out(path, std::ios::binary);
  out << "INFEROP2";
  out.write(reinterpret_cast<const char*>(&head_bytes), sizeof head_bytes);
  out.write(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  out << rest;
}

// An Error, or a run that stays inside its own memory (the sanitizer builds see to that). Returns whether it ran.
bool replays(const std::string& path) {
  try {
    const Dump dump = read_dump(path);
    (void)check_image(dump.image, create_backend("simd"), create_backend("scalar"), Numerics::cpu_kernels);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<OpImage> images() {
  std::vector<OpImage> all;
  for (int i = 0; i < kOpCount; ++i) all.push_back(std::move(op_cases(static_cast<OpId>(i)).back().image));
  const AttentionShape attention{.sequences = {{3, 1}, {0, 5}}, .q_heads = 4, .kv_heads = 2, .head_dim = 32};
  all.push_back(attention_block_case({.attention = attention}, true, 1));
  return all;
}

const std::vector<Json> kHostile = {0,         1,   2,    3,     -1,        -2,   7,       1 << 20, int64_t{1} << 31,
                                    INT64_MAX, 0.5, 1e18, 1e300, INT64_MIN, true, nullptr, "inf",   "I32"};

// Hours of this are the fuzzer's (tests/fuzz); these are the first seconds.
TEST(Replay, NoNumberOfTheHeadLeadsOutOfTheFilesMemory) {
  const std::string path = scratch_path("head.dump");
  std::mt19937 random(1);
  for (const OpImage& image : images()) {
    write_dump(path, image, {.tested = "simd", .reference = "scalar"});
    ASSERT_TRUE(replays(path)) << op_name(image.records()[0].op());
    const Parts whole = read_parts(path);
    const Json flat = whole.head.flatten();
    for (const auto& [key, value] : flat.items()) {
      if (random() % (kSanitized ? 8 : 2) != 0) continue;
      for (int i = 0; i < 2; ++i) {
        Json changed = flat;
        changed[key] = kHostile[random() % kHostile.size()];
        if (i == 0 && value.is_number_integer()) changed[key] = value.get<int64_t>() + (random() % 2 == 0 ? 1 : -1);
        write_parts(path, changed.unflatten(), whole.memory);
        (void)replays(path);
      }
    }
  }
  std::filesystem::remove(path);
}

TEST(Replay, NoIndexInTheMemoryLeadsOutOfIt) {
  const std::string path = scratch_path("memory.dump");
  std::mt19937 random(2);
  constexpr int32_t kIndices[] = {-1, 0, 1, 2, 3, 15, 16, 17, 1000, 1 << 20, INT32_MAX, INT32_MIN, -2};
  for (const OpImage& image : images()) {
    write_dump(path, image, {.tested = "simd", .reference = "scalar"});
    const Parts whole = read_parts(path);
    // Blocks of indices are small.
    std::vector<size_t> places;
    size_t begin = 0;
    for (const Json& bytes : whole.head["blocks"]) {
      if (bytes.get<size_t>() <= 512) {
        for (size_t at = begin; at + 4 <= begin + bytes.get<size_t>(); at += 4) places.push_back(at);
      }
      begin += bytes.get<size_t>();
    }
    for (int i = 0; i < 25 && !places.empty(); ++i) {
      std::string memory = whole.memory;
      for (size_t n = 1 + random() % 3; n > 0; --n) {
        const int32_t index = kIndices[random() % std::size(kIndices)];
        std::memcpy(memory.data() + places[random() % places.size()], &index, sizeof index);
      }
      write_parts(path, whole.head, memory);
      (void)replays(path);
    }
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace inferno
