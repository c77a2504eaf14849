#include "quant/quant.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace inferno {
namespace {

struct ReferenceFormat {
  DType dtype;
  const char* name;  // of the files of the reference data
};
constexpr ReferenceFormat kReferenceFormats[] = {
    {DType::f16, "f16"},   {DType::bf16, "bf16"}, {DType::q8_0, "q8_0"}, {DType::q4_0, "q4_0"},
    {DType::q4_1, "q4_1"}, {DType::q5_0, "q5_0"}, {DType::q5_1, "q5_1"}, {DType::q2_k, "q2_K"},
    {DType::q3_k, "q3_K"}, {DType::q4_k, "q4_K"}, {DType::q5_k, "q5_K"}, {DType::q6_k, "q6_K"},
};
constexpr int64_t kRows = 16;
constexpr int64_t kCols = 512;

std::string reference_folder() {
  const char* data = std::getenv("INFERNO_TEST_DATA");
  return data == nullptr ? "" : std::string(data) + "/data/quant/";
}

template <typename T>
std::vector<T> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

TEST(Dequantize, MatchesReferenceBytesBitForBit) {
  const std::string folder = reference_folder();
  if (folder.empty()) GTEST_SKIP() << "INFERNO_TEST_DATA is not set";
  for (const ReferenceFormat& format : kReferenceFormats) {
    SCOPED_TRACE(format.name);
    const auto bytes = read_file<uint8_t>(folder + format.name + ".q.bin");
    const auto expected = read_file<uint32_t>(folder + format.name + ".f32.bin");
    ASSERT_EQ(bytes.size(), static_cast<size_t>(kRows * row_bytes(format.dtype, kCols)));
    ASSERT_EQ(expected.size(), static_cast<size_t>(kRows * kCols));
    std::vector<float> values(static_cast<size_t>(kRows * kCols));
    dequantize_row(format.dtype, bytes.data(), values.data(), kRows * kCols);
    EXPECT_EQ(std::memcmp(values.data(), expected.data(), values.size() * 4), 0);
  }
}

}  // namespace
}  // namespace inferno
