// Models split into several files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/gguf.h"
#include "gguf/writer.h"

namespace inferno {
namespace {

struct PartSpec {
  std::string file;
  uint16_t number = 0;
  uint16_t count = 3;
  std::vector<std::string> tensors = {};
  int32_t total = 4;
};

class GgufSplitTest : public ::testing::Test {
 public:
  ~GgufSplitTest() override { std::filesystem::remove_all(folder_); }

 protected:
  GgufSplitTest() : folder_(::testing::TempDir() + "inferno_split_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
  }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // Every tensor holds eight bytes of its own name's last letter.
  void write_part(const PartSpec& part) const {
    GgufWriter writer(path(part.file));
    if (part.number == 0) writer.set("general.name", MetadataValue("split model"));
    writer.set("split.no", MetadataValue(part.number));
    writer.set("split.count", MetadataValue(part.count));
    writer.set("split.tensors.count", MetadataValue(part.total));
    for (const std::string& name : part.tensors) writer.add_tensor(name, DType::f32, Shape(2));
    for (const std::string& name : part.tensors)
      writer.write_data(std::vector<std::byte>(8, static_cast<std::byte>(name.back())));
    writer.finish();
  }
  void write_model() const {
    write_part({.file = "m-00001-of-00003.gguf", .number = 0, .tensors = {}});
    write_part({.file = "m-00002-of-00003.gguf", .number = 1, .tensors = {"a", "b"}});
    write_part({.file = "m-00003-of-00003.gguf", .number = 2, .tensors = {"c", "d"}});
  }
  [[nodiscard]] std::string open_error(const std::string& name) const {
    try {
      (void)GgufFile::open(path(name));
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  std::string folder_;
};

TEST_F(GgufSplitTest, OpeningAnyPartOpensTheWholeModel) {
  write_model();
  for (const char* name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const GgufFile file = GgufFile::open(path(name));
    EXPECT_EQ(file.part_count(), 3U);
    EXPECT_EQ(file.part_path(1), path("m-00002-of-00003.gguf"));
    EXPECT_EQ(file.get_string("general.name"), "split model");
    ASSERT_EQ(file.tensors().size(), 4U);
    for (const char* tensor_name : {"a", "b", "c", "d"}) {
      std::vector<std::byte> bytes(8);
      file.read_tensor(file.get_tensor(tensor_name), bytes);
      EXPECT_EQ(bytes, std::vector<std::byte>(8, static_cast<std::byte>(tensor_name[0])));
    }
    EXPECT_EQ(file.find_tensor("d")->part, 2U);
  }
}

TEST_F(GgufSplitTest, AMissingPartIsNamed) {
  write_model();
  std::filesystem::remove(path("m-00002-of-00003.gguf"));
  const std::string error = open_error("m-00001-of-00003.gguf");
  EXPECT_NE(error.find("part 2 of 3"), std::string::npos) << error;
  EXPECT_NE(error.find("m-00002-of-00003.gguf"), std::string::npos) << error;
}

TEST_F(GgufSplitTest, ARenamedPartIsRefusedWithTheNameItNeeds) {
  write_model();
  std::filesystem::rename(path("m-00002-of-00003.gguf"), path("other.gguf"));
  const std::string error = open_error("other.gguf");
  EXPECT_NE(error.find("NAME-00002-of-00003.gguf"), std::string::npos) << error;
}

TEST_F(GgufSplitTest, PartsThatDoNotBelongTogetherAreRefused) {
  write_model();
  write_part({.file = "m-00002-of-00003.gguf", .number = 2, .tensors = {"a", "b"}});
  EXPECT_NE(open_error("m-00001-of-00003.gguf"), "") << "two files with the same number";
  write_part({.file = "m-00002-of-00003.gguf", .number = 1, .count = 4, .tensors = {"a", "b"}});
  EXPECT_NE(open_error("m-00001-of-00003.gguf"), "") << "a part of a model with more parts";
  write_part({.file = "m-00002-of-00003.gguf", .number = 1, .tensors = {"a"}});
  EXPECT_NE(open_error("m-00001-of-00003.gguf"), "") << "a tensor too few";
  write_part({.file = "m-00002-of-00003.gguf", .number = 1, .tensors = {"a", "c"}});
  EXPECT_NE(open_error("m-00001-of-00003.gguf"), "") << "a tensor in two parts";
  write_model();
  EXPECT_EQ(open_error("m-00001-of-00003.gguf"), "");
}

TEST_F(GgufSplitTest, APartThatSaysItIsBehindTheLastIsRefused) {
  write_part({.file = "m-00004-of-00003.gguf", .number = 3});
  EXPECT_NE(open_error("m-00004-of-00003.gguf"), "");
}

TEST_F(GgufSplitTest, AModelOfOnePartNeedsNoSpecialName) {
  write_part({.file = "plain.gguf", .number = 0, .count = 1, .tensors = {"a"}, .total = 1});
  EXPECT_EQ(open_error("plain.gguf"), "");
}

}  // namespace
}  // namespace inferno
