#include "hub/hub_name.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace inferno::hub {
namespace {

TEST(HubName, IsOwnerAndNameWithAnOptionalFileOrType) {
  const std::optional<ModelName> plain = parse_name("Qwen/Qwen3-0.6B-GGUF");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->repository(), "Qwen/Qwen3-0.6B-GGUF");
  EXPECT_EQ(plain->selector, "");
  EXPECT_EQ(parse_name("a/b:Q4_K_M")->selector, "Q4_K_M");
  EXPECT_EQ(parse_name("a/b:sub/c-Q8_0.gguf")->selector, "sub/c-Q8_0.gguf");
}

TEST(HubName, PathsAndHostileNamesAreNone) {
  for (const char* text : {"", "a", "/a/b", "./a", "../b", "a/..", "a/.b", "a/b/c", "a/b.gguf", "a//b", "a b/c",
                           "a/b:", "a/b:../../x.gguf", "a/b:/x", "a/b\n", "-a/b", "a/b:c d", "~/x", "a/b:x//y"}) {
    EXPECT_FALSE(parse_name(text)) << text;
  }
  EXPECT_FALSE(parse_name("a/" + std::string(200, 'x')));
}

TEST(HubName, PathsThatLeaveTheFolderAreNotSafe) {
  for (const char* path : {"", "..", "../a", "a/../b", "/a", "a/", "a//b", ".a", "a/.b", "a\\b", "a\nb", "c:a"}) {
    EXPECT_FALSE(is_safe_path(path)) << path;
  }
  EXPECT_FALSE(is_safe_path(std::string("a\0b", 3)));
  EXPECT_TRUE(is_safe_path("BF16/model-00001-of-00002.gguf"));
}

std::vector<std::string> selected(const std::vector<std::string>& files, const std::string& selector) {
  return select_files(files, {"o", "n", selector});
}

TEST(HubName, ATypeIsAWholeWordOfTheFileName) {
  const std::vector<std::string> files = {"m-Q4_K_M.gguf", "m-q4_k_s.gguf", "m.Q8_0.gguf", "README.md",
                                          "mmproj-m-Q8_0.gguf"};
  EXPECT_EQ(selected(files, "q4_k_m"), (std::vector<std::string>{"m-Q4_K_M.gguf"}));
  EXPECT_EQ(selected(files, "Q4_K_S"), (std::vector<std::string>{"m-q4_k_s.gguf"}));
  EXPECT_EQ(selected(files, "Q8_0"), (std::vector<std::string>{"m.Q8_0.gguf"}));
  EXPECT_EQ(selected(files, ""), (std::vector<std::string>{"m-Q4_K_M.gguf"}));
  EXPECT_EQ(selected(files, "m.Q8_0.gguf"), (std::vector<std::string>{"m.Q8_0.gguf"}));
  EXPECT_THROW((void)selected(files, "Q4_K"), Error);
  EXPECT_THROW((void)selected(files, "other.gguf"), Error);
  EXPECT_THROW((void)selected({"a.txt"}, ""), Error);
  EXPECT_THROW((void)selected({"a-F16.gguf", "b-F16.gguf"}, ""), Error);
  EXPECT_THROW((void)selected({"../a-F16.gguf"}, ""), Error);
}

TEST(HubName, ASplitModelIsAllItsParts) {
  const std::vector<std::string> parts = {"m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf"};
  const std::vector<std::string> ordered = {"m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"};
  EXPECT_EQ(selected(parts, ""), ordered);
  EXPECT_EQ(selected(parts, parts[0]), ordered);
  EXPECT_THROW((void)selected({parts[0]}, ""), Error);
}

}  // namespace
}  // namespace inferno::hub
