#include "gguf/writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/gguf.h"
#include "gguf/test_files.h"

namespace inferno {
namespace {

class GgufWriterTest : public ::testing::Test {
 public:
  ~GgufWriterTest() override { std::filesystem::remove_all(folder_); }

 protected:
  GgufWriterTest() : folder_(::testing::TempDir() + "inferno_writer_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  [[nodiscard]] std::string path(const std::string& name = "file.gguf") const { return folder_ + "/" + name; }
  [[nodiscard]] size_t files_in_folder() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::string folder_;
};

std::vector<std::byte> numbered_bytes(size_t count, int seed) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31 + static_cast<size_t>(seed));
  return bytes;
}

TEST_F(GgufWriterTest, EveryMetadataTypeComesBackEqual) {
  const std::vector<MetadataValue> values = {
      MetadataValue(uint8_t{255}),
      MetadataValue(int8_t{-128}),
      MetadataValue(uint16_t{65535}),
      MetadataValue(int16_t{-32768}),
      MetadataValue(std::numeric_limits<uint32_t>::max()),
      MetadataValue(std::numeric_limits<int32_t>::min()),
      MetadataValue(1.0e-30F),
      MetadataValue(true),
      MetadataValue(false),
      MetadataValue(std::string("nul \0 and \xFF", 11)),
      MetadataValue(std::string()),
      MetadataValue(std::numeric_limits<uint64_t>::max()),
      MetadataValue(std::numeric_limits<int64_t>::min()),
      MetadataValue(-0.1),
      MetadataValue(MetadataArray{std::vector<uint8_t>{1, 2}}),
      MetadataValue(MetadataArray{std::vector<int8_t>{-1, 2}}),
      MetadataValue(MetadataArray{std::vector<uint16_t>{1, 65535}}),
      MetadataValue(MetadataArray{std::vector<int16_t>{}}),
      MetadataValue(MetadataArray{std::vector<uint32_t>(100000, 7)}),
      MetadataValue(MetadataArray{std::vector<int32_t>{-7}}),
      MetadataValue(MetadataArray{std::vector<float>{0.5F}}),
      MetadataValue(MetadataArray{std::vector<bool>{true, false, true}}),
      MetadataValue(MetadataArray{StringList({"a", "", std::string(70000, 'x'), "\xE2\x82\xAC"})}),
      MetadataValue(MetadataArray{std::vector<MetadataArray>{MetadataArray{std::vector<uint16_t>{4}},
                                                             MetadataArray{StringList({"b"})},
                                                             MetadataArray{std::vector<MetadataArray>{}}}}),
      MetadataValue(MetadataArray{std::vector<uint64_t>{1, ~uint64_t{0}}}),
      MetadataValue(MetadataArray{std::vector<int64_t>{-1}}),
      MetadataValue(MetadataArray{std::vector<double>{0.1, -2}}),
  };
  GgufWriter writer(path());
  for (size_t i = 0; i < values.size(); ++i) writer.set("key " + std::to_string(i), values[i]);
  writer.finish();
  const GgufFile file = GgufFile::open(path());
  EXPECT_EQ(file.version(), 3U);
  ASSERT_EQ(file.metadata().size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(file.metadata()[i].key, "key " + std::to_string(i));
    EXPECT_EQ(file.metadata()[i].value, values[i]) << value_to_string(values[i]);
  }
}

TEST_F(GgufWriterTest, TensorsOfEveryTypeComeBackWhateverThePiecesTheyWereWrittenIn) {
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{100000}}) {
    GgufWriter writer(path());
    std::vector<std::byte> data;
    for (const DTypeInfo& info : kDTypes) {
      writer.add_tensor(std::string(info.name), info.dtype, Shape(2, 3, 256));
      const size_t bytes = static_cast<size_t>(row_bytes(info.dtype, 2 * 3 * 256));
      const std::vector<std::byte> tensor = numbered_bytes(bytes, info.gguf_id);
      data.insert(data.end(), tensor.begin(), tensor.end());
    }
    for (size_t begin = 0; begin < data.size(); begin += piece)
      writer.write_data(std::span(data).subspan(begin, std::min(piece, data.size() - begin)));
    const uint64_t size = writer.finish();
    EXPECT_EQ(size, std::filesystem::file_size(path()));
    const GgufFile file = GgufFile::open(path());
    for (const DTypeInfo& info : kDTypes) {
      const GgufTensor& tensor = *file.find_tensor(info.name);
      EXPECT_EQ(tensor.dtype, info.dtype);
      EXPECT_EQ(tensor.shape, Shape(2, 3, 256));
      EXPECT_EQ(tensor.offset % 32, 0U);
      std::vector<std::byte> bytes(tensor.bytes);
      file.read_tensor(tensor, bytes);
      EXPECT_EQ(bytes, numbered_bytes(tensor.bytes, info.gguf_id)) << info.name;
    }
  }
}

TEST_F(GgufWriterTest, AnyValidAlignmentIsKept) {
  for (const uint32_t alignment : {1U, 2U, 8U, 24U, 64U, 4096U}) {
    GgufWriter writer(path());
    writer.add_tensor("a", DType::f16, Shape(3));
    writer.set("general.alignment", MetadataValue(alignment));
    writer.add_tensor("b", DType::f16, Shape(5));
    writer.write_data(numbered_bytes(16, 0));
    writer.finish();
    const GgufFile file = GgufFile::open(path());
    const GgufTensor& b = *file.find_tensor("b");
    EXPECT_EQ(b.offset % alignment, 0U);
    std::vector<std::byte> bytes(4);
    file.read_tensor(b, bytes, 6);
    const std::vector<std::byte> all = numbered_bytes(16, 0);
    EXPECT_EQ(bytes, std::vector(all.begin() + 12, all.end()));
  }
}

TEST_F(GgufWriterTest, ACopyOfAFileHasTheSameContents) {
  const BuiltFile sample = build_sample_file();
  const GgufFile source = GgufFile::from_memory(sample.span(), "sample");
  GgufWriter writer(path());
  for (const MetadataEntry& entry : source.metadata()) writer.set(entry.key, entry.value);
  for (const GgufTensor& tensor : source.tensors()) writer.add_tensor(tensor.name, *tensor.type, tensor.shape);
  for (const GgufTensor& tensor : source.tensors()) writer.write_data(source.view_tensor(tensor));
  writer.finish();
  const std::string copy = read_text(path(), 1 << 20);
  EXPECT_EQ(copy.substr(0, sample.data_begin), sample.bytes.substr(0, sample.data_begin));
  const GgufFile file = GgufFile::open(path());
  for (const GgufTensor& tensor : source.tensors()) {
    std::vector<std::byte> bytes(tensor.bytes);
    file.read_tensor(file.get_tensor(tensor.name), bytes);
    EXPECT_TRUE(std::ranges::equal(bytes, source.view_tensor(tensor)));
  }
}

TEST_F(GgufWriterTest, DuplicatesAndImpossibleTensorsAreRefused) {
  GgufWriter writer(path());
  writer.set("key", MetadataValue(1.0F));
  EXPECT_THROW(writer.set("key", MetadataValue(1.0F)), Error);
  EXPECT_THROW(writer.set("", MetadataValue(1.0F)), Error);
  EXPECT_THROW(writer.set("general.alignment", MetadataValue(uint32_t{13})), Error);
  writer.add_tensor("t", DType::f32, Shape(1));
  EXPECT_THROW(writer.add_tensor("t", DType::f32, Shape(1)), Error);
  EXPECT_THROW(writer.add_tensor("", DType::f32, Shape(1)), Error);
  EXPECT_THROW(writer.add_tensor("odd", DType::q8_0, Shape(2, 33)), Error);
  EXPECT_THROW(writer.add_tensor("none", DType::f32, Shape(0)), Error);
  EXPECT_THROW(writer.add_tensor("huge", DType::f32, Shape(int64_t{1} << 62, 4)), Error);
  MetadataArray deep{std::vector<uint8_t>{1}};
  for (int i = 0; i < 4; ++i) deep = MetadataArray{std::vector<MetadataArray>{deep}};
  EXPECT_THROW(writer.set("deep", MetadataValue(deep)), Error);
}

TEST_F(GgufWriterTest, NothingIsLeftBehindWithoutFinish) {
  {
    GgufWriter writer(path());
    writer.add_tensor("t", DType::f32, Shape(2));
    writer.write_data(numbered_bytes(4, 0));
  }
  EXPECT_EQ(files_in_folder(), 0U);
}

TEST_F(GgufWriterTest, UnwritablePlacesAreErrors) {
  EXPECT_THROW(GgufWriter(path("missing/file.gguf")), Error);
  EXPECT_THROW(GgufWriter{folder_}, Error);
}

}  // namespace
}  // namespace inferno
