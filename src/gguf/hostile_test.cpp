// Hostile files: no crash, no hang, a clear error, and no memory beyond the file's size and a fixed allowance.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <string>

#include "base/error.h"
#include "base/thread_sanitizer.h"
#include "gguf/gguf.h"
#include "gguf/head.h"
#include "gguf/test_files.h"
#include "support/sanitized.h"

namespace {
std::atomic<size_t> g_live = 0;
std::atomic<size_t> g_peak = 0;
}  // namespace

// Every allocation of this program passes here, so that the tests can say how much one call takes at its peak.
#if !INFERNO_THREAD_SANITIZER
namespace {
void* metered_new(size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  const size_t live = g_live += malloc_usable_size(memory);
  if (live > g_peak) g_peak = live;
  return memory;
}

void metered_delete(void* memory) noexcept {
  if (memory != nullptr) g_live -= malloc_usable_size(memory);
  std::free(memory);
}
}  // namespace

void* operator new(size_t size) {
  return metered_new(size);
}
void* operator new[](size_t size) {
  return metered_new(size);
}
void operator delete(void* memory) noexcept {
  metered_delete(memory);
}
void operator delete[](void* memory) noexcept {
  metered_delete(memory);
}
void operator delete(void* memory, size_t) noexcept {
  metered_delete(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  metered_delete(memory);
}
#endif

namespace inferno {
namespace {

constexpr size_t kAllowance = size_t{64} << 20;

struct Outcome {
  std::string error;  // empty: the file opened
  size_t peak = 0;    // bytes allocated above what was there before
};

// Opens with `open` and uses everything the file promises.
template <typename Open>
Outcome try_file(Open open) {
  Outcome outcome;
  const size_t before = g_live;
  g_peak = before;
  try {
    const GgufFile file = open();
    size_t text = 0;
    for (const MetadataEntry& entry : file.metadata()) text += value_to_string(entry.value).size();
    std::vector<std::byte> data;
    for (const GgufTensor& tensor : file.tensors()) {
      data.resize(tensor.bytes);
      file.read_tensor(tensor, data);
      text += file.get_tensor(tensor.name).name.size();
    }
    EXPECT_LE(text, file.file_bytes() * 100 + 100);
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  outcome.peak = g_peak - before;
  return outcome;
}

Outcome try_memory(const std::string& bytes) {
  return try_file([&] { return GgufFile::from_memory(std::as_bytes(std::span(bytes)), "test"); });
}

// A file that has a path but lives in memory: thousands of files on a real disk would take minutes.
class ScratchFile {
 public:
  ScratchFile() : fd_(::memfd_create("gguf", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {}
  ~ScratchFile() { ::close(fd_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  Outcome try_bytes(const std::string& bytes) {
    EXPECT_EQ(::ftruncate(fd_, 0), 0);
    EXPECT_EQ(::pwrite(fd_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return try_file([&] { return GgufFile::open(path_); });
  }

 private:
  int fd_;
  std::string path_;
};

TEST(GgufHostile, TheMeterSeesAllocations) {
  if (INFERNO_THREAD_SANITIZER) GTEST_SKIP() << "ThreadSanitizer has the allocations";
  const Outcome outcome = try_file([]() -> GgufFile {
    const std::vector<char> large(kAllowance);
    fail("{}", large.size());
  });
  EXPECT_GE(outcome.peak, kAllowance);
}

TEST(GgufHostile, EveryMalformedFileIsRefusedInOneLine) {
  const std::vector<MalformedFile> files = build_malformed_files();
  EXPECT_GE(files.size(), 200U);
  ScratchFile scratch;
  for (const MalformedFile& file : files) {
    for (const Outcome& outcome : {try_memory(file.bytes), scratch.try_bytes(file.bytes)}) {
      EXPECT_NE(outcome.error, "") << file.name;
      EXPECT_EQ(outcome.error.find('\n'), std::string::npos) << outcome.error;
      EXPECT_LT(outcome.error.size(), 500U) << outcome.error;
      EXPECT_LE(outcome.peak, file.bytes.size() + kAllowance) << file.name;
    }
  }
}

TEST(GgufHostile, ThousandsOfMutationsNeitherCrashNorTakeMuchMemory) {
  constexpr size_t kMutations = kSanitized ? 2'000 : 10'000;  // a fuzzer has the sanitized build, too
  const BuiltFile base = build_sample_file();
  ASSERT_EQ(try_memory(base.bytes).error, "");
  ScratchFile scratch;
  std::mt19937_64 random(20240229);
  size_t opened = 0;
  for (size_t i = 0; i < kMutations; ++i) {
    const std::string bytes = mutate(base, random);
    const Outcome from_memory = try_memory(bytes);
    ASSERT_LE(from_memory.peak, bytes.size() + kAllowance) << "mutation " << i;
    const Outcome from_file = scratch.try_bytes(bytes);
    ASSERT_LE(from_file.peak, bytes.size() + kAllowance) << "mutation " << i;
    ASSERT_EQ(from_memory.error.empty(), from_file.error.empty())
        << "mutation " << i << ": " << from_memory.error << " / " << from_file.error;
    opened += from_memory.error.empty() ? 1 : 0;
  }
  // Both outcomes must be common, or the mutations test little.
  EXPECT_GT(opened, kMutations / 20);
  EXPECT_LT(opened, kMutations / 2);
}

TEST(GgufHostile, FilesAtTheLimitsOpenWithinTheAllowance) {
  for (const std::string& bytes :
       {build_file_with_many_keys(kMaxMetadataCount), build_file_with_many_tensors(kMaxTensorCount),
        build_file_with_nested_arrays(kMaxNestedArrays - 2, kMaxArrayDepth)}) {
    const Outcome outcome = try_memory(bytes);
    EXPECT_EQ(outcome.error, "");
    EXPECT_LE(outcome.peak, bytes.size() + kAllowance);
  }
}

TEST(GgufHostile, FilesBehindTheLimitsAreRefused) {
  for (const std::string& bytes :
       {build_file_with_many_keys(kMaxMetadataCount + 1), build_file_with_many_tensors(kMaxTensorCount + 1),
        build_file_with_nested_arrays(kMaxNestedArrays - 1, kMaxArrayDepth)}) {
    EXPECT_NE(try_memory(bytes).error, "");
  }
}

}  // namespace
}  // namespace inferno
