#include "gguf/gguf.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "gguf/test_files.h"
#include "support/test_data.h"

namespace inferno {
namespace {

// Empty when the file opens, else the message.
std::string open_error(const std::string& path) {
  try {
    (void)GgufFile::open(path);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Gguf, EveryMalformedFileBehavesAsItsManifestSays) {
  for (const std::string& folder : testing::shipped_data("gguf-malformed")) {
    const auto manifest = testing::read_json(folder + "/manifest.json");
    for (const auto& entry : manifest.at("cases")) {
      const auto file = entry.at("file").get<std::string>();
      const auto expect = entry.at("expect").get<std::string>();
      const std::string error = open_error(fmt::format("{}/{}", folder, file));
      if (expect == "loads") {
        EXPECT_EQ(error, "") << file;
      } else if (expect == "clear error") {
        EXPECT_NE(error, "") << file;
      }
      EXPECT_EQ(error.find('\n'), std::string::npos) << file;
    }
  }
}

TEST(Gguf, WellFormedFilesOpenWhateverModelTheyHold) {
  size_t count = 0;
  for (const std::string& folder : testing::shipped_data("gguf-badmodels")) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".gguf") continue;
      const std::string error = open_error(entry.path());
      // Two files outside the repository have a tensor whose bytes exceed its shape, which the format does not allow.
      const bool has_gap = error.find("there is a gap of") != std::string::npos;
      EXPECT_TRUE(error.empty() || has_gap) << error;
      ++count;
    }
  }
  EXPECT_GE(count, 40U);
}

TEST(Gguf, AVocabularyIsReadWhole) {
  const auto check = [](const std::string& path, size_t count, std::string_view first) {
    const GgufFile file = GgufFile::open(path);
    const StringList& tokens = file.get_strings("tokenizer.ggml.tokens");
    EXPECT_EQ(tokens.size(), count);
    EXPECT_EQ(tokens[0], first);
    EXPECT_EQ(file.get_ints("tokenizer.ggml.token_type").size(), count);
  };
  check(INFERNO_SOURCE_DIR "/models/tiny-books-26m.gguf", 8192, "<|endoftext|>");
  for (const std::string& path : testing::find_data("vocab/qwen3.gguf")) check(path, 151936, "!");
}

TEST(Gguf, TheSampleFileIsReadValueByValueInBothVersions) {
  for (const uint32_t version : {2U, 3U}) {
    const BuiltFile sample = build_sample_file(version);
    const GgufFile file = GgufFile::from_memory(sample.span(), "sample");
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.metadata().size(), 29U);
    EXPECT_EQ(file.get_string("general.architecture"), "sample");
    EXPECT_EQ(file.get_uint("s.u8"), 250U);
    EXPECT_EQ(file.get_int("s.i8"), -5);
    EXPECT_EQ(file.get_uint("s.u16"), 65000U);
    EXPECT_EQ(file.get_int("s.i16"), -300);
    EXPECT_EQ(file.get_uint("s.u32"), 4000000000U);
    EXPECT_EQ(file.get_int("s.i32"), -70000);
    EXPECT_EQ(file.get_float("s.f32"), 1.5);
    EXPECT_TRUE(file.get_bool("s.true"));
    EXPECT_FALSE(file.get_bool("s.false"));
    EXPECT_EQ(file.get_uint("s.u64"), (uint64_t{1} << 63) + 1);
    EXPECT_EQ(file.get_int("s.i64"), -(int64_t{1} << 40));
    EXPECT_EQ(file.get_float("s.f64"), 0.1);
    EXPECT_EQ(file.get_ints("a.u8"), (std::vector<int64_t>{1, 2, 3}));
    EXPECT_EQ(file.get_ints("a.i8"), (std::vector<int64_t>{-1, 2}));
    EXPECT_EQ(file.get_ints("a.u16"), (std::vector<int64_t>{1, 65535}));
    EXPECT_EQ(file.get_ints("a.i16"), (std::vector<int64_t>{-1, 1}));
    EXPECT_EQ(file.get_ints("a.u32"), (std::vector<int64_t>{7, 8, 9}));
    EXPECT_EQ(file.get_ints("a.i32"), (std::vector<int64_t>{-7, 8}));
    EXPECT_EQ(file.get_ints("a.i64"), (std::vector<int64_t>{-1}));
    EXPECT_EQ(file.get_floats("a.f32"), (std::vector<float>{0.5F, -0.25F}));
    EXPECT_EQ(file.get_floats("a.f64"), (std::vector<float>{3.25F}));
    EXPECT_EQ(file.find_bools("a.bool"), (std::vector<bool>{true, false, true}));
    EXPECT_TRUE(file.is_array("a.bool"));
    EXPECT_FALSE(file.is_array("s.true"));
    EXPECT_FALSE(file.is_array("a.missing"));
    const StringList& strings = file.get_strings("a.string");
    ASSERT_EQ(strings.size(), 3U);
    EXPECT_EQ(strings[0], "hello");
    EXPECT_EQ(strings[1], "");
    EXPECT_EQ(strings[2], "\xF0\x9F\x94\xA5");
    const auto* nested = file.find("a.nested")->as<MetadataArray>();
    ASSERT_NE(nested, nullptr);
    const auto& items = std::get<std::vector<MetadataArray>>(nested->items);
    EXPECT_EQ(std::get<std::vector<uint16_t>>(items.at(0).items), (std::vector<uint16_t>{5, 6}));
    EXPECT_EQ(std::get<StringList>(items.at(1).items)[0], "deep");
  }
}

TEST(Gguf, TensorsHaveTheirShapeOutermostFirstAndTheirPlaceInTheFile) {
  const BuiltFile sample = build_sample_file();
  const GgufFile file = GgufFile::from_memory(sample.span(), "sample");
  ASSERT_EQ(file.tensors().size(), 5U);
  EXPECT_EQ(file.get_tensor("t.f32").shape, Shape(3, 8));
  EXPECT_EQ(file.get_tensor("t.f16").shape, Shape(2, 3, 1, 2));
  const GgufTensor& q8 = *file.find_tensor("t.q8");
  EXPECT_EQ(q8.shape, Shape(2, 64));
  EXPECT_EQ(q8.dtype, DType::q8_0);
  EXPECT_EQ(q8.bytes, 136U);
  EXPECT_EQ(q8.offset, sample.data_begin + 96);
  const GgufTensor& unknown = *file.find_tensor("t.tq2");
  EXPECT_EQ(unknown.dtype, std::nullopt);
  EXPECT_EQ(unknown.type->name, "TQ2_0");
  EXPECT_EQ(unknown.bytes, 132U);
  EXPECT_EQ(file.find_tensor("t.none"), nullptr);
  EXPECT_THROW((void)file.get_tensor("t.none"), Error);
  std::vector<std::byte> part(10);
  file.read_tensor(q8, part, 126);
  EXPECT_TRUE(std::ranges::equal(part, sample.span().subspan(q8.offset + 126, 10)));
  EXPECT_TRUE(std::ranges::equal(file.view_tensor(q8), sample.span().subspan(q8.offset, 136)));
}

TEST(Gguf, AWrongTypeIsAnErrorThatNamesKeyAndTypes) {
  const BuiltFile sample = build_sample_file();
  const GgufFile file = GgufFile::from_memory(sample.span(), "sample.gguf");
  const auto message = [](auto call) -> std::string {
    try {
      (void)call();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(message([&] { return file.get_string("s.u32"); }),
            "\"sample.gguf\": metadata key \"s.u32\" must be a string, not u32 (4000000000)");
  EXPECT_EQ(message([&] { return file.find_uint("s.i32"); }),
            "\"sample.gguf\": metadata key \"s.i32\" must be a whole number of at least 0, not i32 (-70000)");
  EXPECT_EQ(message([&] { return file.get_strings("a.i32"); }),
            "\"sample.gguf\": metadata key \"a.i32\" must be an array of strings, not array of i32 ([2] -7, 8)");
  EXPECT_NE(message([&] { return file.get_int("s.u64"); }), "");
  EXPECT_NE(message([&] { return file.get_ints("a.u64"); }), "");
  EXPECT_NE(message([&] { return file.get_ints("a.bool"); }), "");
  EXPECT_NE(message([&] { return file.get_floats("a.i32"); }), "");
  EXPECT_NE(message([&] { return file.find_bools("a.i32"); }), "");
  EXPECT_NE(message([&] { return file.find_bools("s.true"); }), "");
  EXPECT_NE(message([&] { return file.get_float("s.i32"); }), "");
  EXPECT_NE(message([&] { return file.get_bool("s.u8"); }), "");
  EXPECT_NE(message([&] { return file.get_uint("s.true"); }), "");
  EXPECT_NE(message([&] { return file.get_uint("s.missing"); }).find("s.missing"), std::string::npos);
  EXPECT_EQ(file.find_uint("s.missing"), std::nullopt);
  EXPECT_EQ(file.find_string("s.missing"), nullptr);
}

TEST(Gguf, ValuesPrintShortAndSafe) {
  const BuiltFile sample = build_sample_file();
  const GgufFile file = GgufFile::from_memory(sample.span(), "sample");
  const auto text = [&](std::string_view key) { return value_to_string(*file.find(key), 60); };
  EXPECT_EQ(text("s.u8"), "250");
  EXPECT_EQ(text("s.true"), "true");
  EXPECT_EQ(text("s.f32"), "1.5");
  EXPECT_EQ(text("s.string"), "\"tab\\x09nul\"");
  EXPECT_EQ(text("a.bool"), "[3] true, false, true");
  EXPECT_EQ(text("a.nested"), "[2] [2] 5, 6, [1] \"deep\"");
  const MetadataValue tokens(MetadataArray{StringList(std::vector<std::string>(1000, "token"))});
  EXPECT_LT(value_to_string(tokens, 60).size(), 80U);
  EXPECT_EQ(value_to_string(tokens, 60).substr(0, 22), "[1000] \"token\", \"token");
}

TEST(Gguf, AMovedFileStillFindsItsNames) {
  const BuiltFile sample = build_sample_file();
  GgufFile first = GgufFile::from_memory(sample.span(), "sample");
  const GgufTensor* tensor = first.find_tensor("t.q8");
  const GgufFile second = std::move(first);
  EXPECT_EQ(second.find_tensor("t.q8"), tensor);
  EXPECT_EQ(second.get_uint("s.u8"), 250U);
}

TEST(Gguf, PathsThatAreNoFilesAreErrors) {
  EXPECT_NE(open_error("no-such-file.gguf").find("no-such-file.gguf"), std::string::npos);
  EXPECT_NE(open_error(::testing::TempDir()), "");
}

}  // namespace
}  // namespace inferno
