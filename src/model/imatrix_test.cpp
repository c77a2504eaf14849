#include "model/imatrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"

namespace inferno {
namespace {

class ImatrixFile : public testing::Test {
 protected:
  ~ImatrixFile() override { std::filesystem::remove(path_); }

  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  const std::string path_ =
      testing::TempDir() + "inferno_" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

std::string number(int32_t value) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &value, 4);
  return bytes;
}

// An entry of the older format.
std::string entry(const std::string& name, int32_t chunks, const std::vector<float>& values) {
  std::string bytes =
      number(static_cast<int32_t>(name.size())) + name + number(chunks) + number(static_cast<int32_t>(values.size()));
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  return bytes;
}

TEST_F(ImatrixFile, ComesBackAsItWasWritten) {
  Imatrix imatrix;
  imatrix.entries["blk.0.attn_q.weight"] = {{2.0F, 4.0F, 6.0F}, {2.0F}};
  imatrix.entries["blk.0.ffn_up_exps.weight"] = {{1.0F, 2.0F, 3.0F, 4.0F}, {1.0F, 0.0F}};
  imatrix.datasets = {"text.txt"};
  imatrix.chunks = 3;
  imatrix.chunk_tokens = 512;
  imatrix.write(path_);
  const Imatrix back = Imatrix::read(path_);
  EXPECT_EQ(back.datasets, imatrix.datasets);
  EXPECT_EQ(back.chunks, 3U);
  EXPECT_EQ(back.chunk_tokens, 512U);
  EXPECT_EQ(back.means("blk.0.attn_q.weight", Shape(8, 3)), (std::vector<float>{1.0F, 2.0F, 3.0F}));
  // An expert that was never reached counts its columns alike.
  EXPECT_EQ(back.means("blk.0.ffn_up_exps.weight", Shape(2, 4, 2)), (std::vector<float>{1.0F, 2.0F, 1.0F, 1.0F}));
  EXPECT_TRUE(back.means("other", Shape(8, 3)).empty());
  EXPECT_THROW((void)back.means("blk.0.attn_q.weight", Shape(8, 4)), Error);
  EXPECT_THROW((void)back.means("blk.0.attn_q.weight", Shape(9, 1)), Error);
}

TEST_F(ImatrixFile, TheOlderFormatIsRead) {
  write(number(2) + entry("a", 2, {2.0F, 6.0F}) + entry("b", 1, {1.0F}) + number(7) + number(4) + "text");
  const Imatrix imatrix = Imatrix::read(path_);
  EXPECT_EQ(imatrix.means("a", Shape(4, 2)), (std::vector<float>{1.0F, 3.0F}));
  EXPECT_EQ(imatrix.means("b", Shape(4, 1)), (std::vector<float>{1.0F}));
  EXPECT_EQ(imatrix.chunks, 7U);
  EXPECT_EQ(imatrix.datasets, (std::vector<std::string>{"text"}));
  write(number(1) + entry("a", 2, {2.0F, 6.0F}));
  EXPECT_EQ(Imatrix::read(path_).entries.size(), 1U);
}

TEST_F(ImatrixFile, HostileFilesAreErrors) {
  const std::string good = number(1) + entry("a", 2, {2.0F, 6.0F});
  for (const std::string& bytes :
       {std::string(), std::string("text"), number(0), number(-1), number(INT32_MAX), number(1) + number(INT32_MAX),
        number(1) + number(-5), number(1) + number(1) + "a" + number(1) + number(INT32_MAX),
        number(1) + number(1) + "a" + number(1) + number(0), good.substr(0, good.size() - 1),
        number(2) + good.substr(4), number(1) + entry("a", 1, {std::numeric_limits<float>::quiet_NaN()}),
        number(1) + entry("a", 1, {-1.0F}), number(1) + entry("a", 1, {INFINITY})}) {
    write(bytes);
    EXPECT_THROW((void)Imatrix::read(path_), Error) << bytes.size();
  }
}

}  // namespace
}  // namespace inferno
