#include "model/model_info.h"

#include <gtest/gtest.h>

#include "gguf/gguf.h"
#include "gguf/writer.h"

namespace inferno {
namespace {

TEST(ModelInfo, SaysWhatTheModelIs) {
  const GgufFile file = GgufFile::open(INFERNO_SOURCE_DIR "/tests/fixtures/llama.gguf");
  const ModelInfo info = inspect_model(file);
  EXPECT_EQ(info.unsupported, "");
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.path, file.path());
  EXPECT_EQ(info.layers, static_cast<int32_t>(file.get_uint("llama.block_count")));
  EXPECT_EQ(info.width, static_cast<int32_t>(file.get_uint("llama.embedding_length")));
  EXPECT_EQ(info.heads, static_cast<int32_t>(file.get_uint("llama.attention.head_count")));
  EXPECT_EQ(info.ffn, static_cast<int32_t>(file.get_uint("llama.feed_forward_length")));
  EXPECT_EQ(info.context, static_cast<int32_t>(file.get_uint("llama.context_length")));
  EXPECT_EQ(info.vocabulary, 288);
  ASSERT_EQ(info.tensors.size(), file.tensors().size());
  ASSERT_EQ(info.metadata.size(), file.metadata().size());
  EXPECT_EQ(info.metadata[0].key, file.metadata()[0].key);
  uint64_t parameters = 0;
  for (const TensorInfo& tensor : info.tensors) {
    uint64_t elements = 1;
    for (const int64_t dim : tensor.shape) elements *= static_cast<uint64_t>(dim);
    parameters += elements;
  }
  EXPECT_EQ(info.parameters, parameters);
}

class OddFile : public testing::Test {
 protected:
  void TearDown() override { ::remove(path_.c_str()); }
  std::string path_ =
      testing::TempDir() + "inferno_info_" + testing::UnitTest::GetInstance()->current_test_info()->name() + ".gguf";
};

TEST_F(OddFile, AModelThatCannotRunIsDescribedAndSaysWhy) {
  GgufWriter writer(path_);
  writer.set("general.architecture", MetadataValue("abacus"));
  writer.set("general.name", MetadataValue(uint32_t{7}));  // no text: as if it were missing
  writer.add_tensor("a", DType::f32, Shape(3, 64));
  writer.add_tensor("b", DType::q8_0, Shape(2, 64));
  writer.add_tensor("c", DType::f32, Shape(1));
  writer.write_data(std::vector<std::byte>(3 * 64 * 4));
  writer.write_data(std::vector<std::byte>(2 * 2 * 34));
  writer.write_data(std::vector<std::byte>(4));
  writer.finish();
  const ModelInfo info = inspect_model(GgufFile::open(path_));
  EXPECT_EQ(info.architecture, "abacus");
  EXPECT_EQ(info.name, "");
  EXPECT_NE(info.unsupported.find("abacus"), std::string::npos) << info.unsupported;
  EXPECT_EQ(info.layers, 0);
  EXPECT_EQ(info.parameters, 3 * 64U + 2 * 64U + 1U);
  EXPECT_DOUBLE_EQ(info.bits_per_weight, 8.0 * (3 * 64 * 4 + 2 * 2 * 34 + 4) / (5 * 64 + 1));
  ASSERT_EQ(info.types.size(), 2U);
  EXPECT_EQ(info.types[0].type, "F32");
  EXPECT_EQ(info.types[0].tensors, 2U);
  EXPECT_EQ(info.types[0].bytes, 3U * 64 * 4 + 4);
  EXPECT_EQ(info.types[1].type, "Q8_0");
  EXPECT_EQ(info.tensors[1].shape, (std::vector<int64_t>{2, 64}));
}

TEST_F(OddFile, AFileOfNothingHasNoWeights) {
  GgufWriter(path_).finish();
  const ModelInfo info = inspect_model(GgufFile::open(path_));
  EXPECT_EQ(info.parameters, 0U);
  EXPECT_EQ(info.bits_per_weight, 0);
  EXPECT_NE(info.unsupported, "");
}

}  // namespace
}  // namespace inferno
