#include "model/quantize_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "model/imatrix.h"
#include "model/model_info.h"
#include "model/weight_types.h"
#include "quant/quant.h"

namespace inferno {
namespace {

class QuantizedFile : public testing::Test {
 protected:
  struct Matrix {
    std::string name;
    int64_t cols = 256;
    DType dtype = DType::f32;
  };

  QuantizedFile() { std::filesystem::create_directories(folder_); }
  ~QuantizedFile() override { std::filesystem::remove_all(folder_); }

  // A file of such matrices, two rows each.
  GgufFile input(const std::vector<Matrix>& matrices, uint32_t heads = 2, uint32_t kv_heads = 2) const {
    const std::string path = folder_ + "/in.gguf";
    GgufWriter writer(path);
    writer.set("general.architecture", MetadataValue("llama"));
    writer.set("llama.attention.head_count", MetadataValue(heads));
    writer.set("llama.attention.head_count_kv", MetadataValue(kv_heads));
    for (const Matrix& matrix : matrices) writer.add_tensor(matrix.name, matrix.dtype, Shape(2, matrix.cols));
    for (const Matrix& matrix : matrices) {
      std::vector<float> row(static_cast<size_t>(matrix.cols));
      for (size_t i = 0; i < row.size(); ++i) row[i] = std::sin(static_cast<float>(i) * 12.9898F) * 0.1F;
      std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(matrix.dtype, matrix.cols)));
      quantize_row(matrix.dtype, row.data(), bytes.data(), matrix.cols);
      writer.write_data(bytes);
      writer.write_data(bytes);
    }
    writer.finish();
    return GgufFile::open(path);
  }

  // The type each tensor of such a file has after quantizing it.
  std::vector<std::string> types_after(const std::vector<std::string>& names, const QuantizeOptions& options = {},
                                       std::string_view type = "Q4_K_M", uint32_t heads = 2) {
    std::vector<Matrix> matrices;
    for (const std::string& name : names) matrices.push_back({name});
    quantize_model(input(matrices, heads), out_, type, options);
    const GgufFile out = GgufFile::open(out_);
    std::vector<std::string> types;
    for (const std::string& name : names) types.emplace_back(out.get_tensor(name).type_name);
    return types;
  }

  const std::string folder_ =
      testing::TempDir() + "inferno_quantize_" + testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string out_ = folder_ + "/out.gguf";
};

using Types = std::vector<std::string>;

TEST_F(QuantizedFile, AMixGivesItsBetterTypeToTheLastEighthAndTheHead) {
  EXPECT_EQ(types_after({"token_embd.weight", "blk.0.attn_v.weight", "blk.1.attn_v.weight", "blk.1.attn_q.weight"}),
            (Types{"Q6_K", "Q4_K", "Q6_K", "Q4_K"}));
}

TEST_F(QuantizedFile, ALayerThatNoModelHasDoesNotCount) {
  EXPECT_EQ(types_after({"blk.0.attn_v.weight", "blk.1.attn_v.weight", "blk.9223372036854775807.attn_v.weight",
                         "blk.2147483647.attn_v.weight"}),
            (Types{"Q4_K", "Q6_K", "Q4_K", "Q4_K"}));
}

TEST_F(QuantizedFile, NormsAndRoutersStayAsTheyAre) {
  EXPECT_EQ(types_after({"blk.0.attn_q_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.attn_q.weight", "other"}),
            (Types{"F32", "F32", "Q4_K", "F32"}));
}

TEST_F(QuantizedFile, HeadsThatShareValuesGetMoreBitsForThem) {
  const Types names = {"blk.0.attn_v.weight"};
  EXPECT_EQ(types_after(names, {}, "Q2_K", 2), Types{"Q3_K"});
  EXPECT_EQ(types_after(names, {}, "Q2_K", 8), Types{"Q4_K"});
  EXPECT_EQ(types_after(names, {}, "IQ4_XS", 8), Types{"Q5_K"});
}

TEST_F(QuantizedFile, WhatTheUserNamesComesFirst) {
  const Types names = {"token_embd.weight", "output.weight", "blk.0.attn_v.weight", "blk.1.attn_v.weight"};
  EXPECT_EQ(types_after(names, {.output_type = "q8_0"}), (Types{"Q4_K", "Q8_0", "Q4_K", "Q6_K"}));
  EXPECT_EQ(types_after(names, {.tensor_types = {{"blk\\.[01]\\.attn_v", "F16"}, {"attn_v", "Q8_0"}}}),
            (Types{"Q4_K", "Q6_K", "F16", "F16"}));
  EXPECT_EQ(types_after(names, {.pure = true}), (Types{"Q4_K", "Q4_K", "Q4_K", "Q4_K"}));
  EXPECT_THROW((void)types_after(names, {.tensor_types = {{"(", "F16"}}}), Error);
  EXPECT_THROW((void)types_after(names, {.tensor_types = {{"a", "Q9"}}}), Error);
  EXPECT_THROW((void)types_after(names, {.output_type = "Q4_K_M"}), Error);
}

TEST_F(QuantizedFile, OneLineForEachPairOfTypes) {
  const GgufFile file = input(
      {{"blk.0.attn_q.weight", 96}, {"blk.0.attn_k.weight", 96}, {"blk.0.attn_v.weight", 96}, {"output.weight", 96}});
  const QuantizeReport report = quantize_model(file, out_, "Q3_K_S");
  ASSERT_EQ(report.fallbacks.size(), 1U);
  EXPECT_EQ(report.fallbacks[0],
            "Q4_0 instead of Q3_K in 3 tensors, whose rows do not divide by 256 (blk.0.attn_q.weight: 96)");
}

TEST_F(QuantizedFile, AQuantizedSourceAndALargerResultAreSaid) {
  const GgufFile file = input({{"blk.0.attn_q.weight", 256, DType::q4_0}});
  const QuantizeReport larger = quantize_model(file, out_, "Q8_0");
  ASSERT_EQ(larger.warnings.size(), 2U);
  EXPECT_NE(larger.warnings[0].find("quantized already"), std::string::npos);
  EXPECT_NE(larger.warnings[1].find("larger"), std::string::npos);
  EXPECT_TRUE(quantize_model(file, out_, "Q4_0").warnings.empty());
  EXPECT_TRUE(quantize_model(input({{"blk.0.attn_q.weight"}}), out_, "Q8_0").warnings.empty());
}

TEST_F(QuantizedFile, ImportanceMakesTheErrorSmallerWhereItMatters) {
  const GgufFile file = input({{"blk.0.attn_q.weight"}});
  Imatrix imatrix;
  Importance importance{std::vector<float>(256, 0.01F), {1.0F}};
  for (size_t i = 0; i < 256; i += 16) importance.sums[i] = 100.0F;
  imatrix.entries["blk.0.attn_q.weight"] = importance;
  imatrix.write(folder_ + "/imatrix.gguf");
  const auto error = [&](const QuantizeOptions& options, std::string_view type) {
    quantize_model(file, out_, type, options);
    const GgufFile out = GgufFile::open(out_);
    const GgufTensor& tensor = *out.find_tensor("blk.0.attn_q.weight");
    std::vector<std::byte> bytes(tensor.bytes);
    out.read_tensor(tensor, bytes);
    std::vector<float> values(512), original(512);
    dequantize_row(*tensor.dtype, bytes.data(), values.data(), 512);
    file.read_tensor(*file.find_tensor("blk.0.attn_q.weight"), std::as_writable_bytes(std::span(original)));
    double sum = 0;
    for (size_t i = 0; i < 512; ++i) {
      sum += importance.sums[i % 256] * (values[i] - original[i]) * (values[i] - original[i]);
    }
    return sum;
  };
  for (const char* type :
       {"Q2_K", "Q3_K_S", "Q4_K_S", "Q5_K_S", "Q6_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "IQ4_XS"}) {
    EXPECT_LT(error({.imatrix = folder_ + "/imatrix.gguf", .pure = true}, type), 0.8 * error({.pure = true}, type))
        << type;
  }
}

TEST_F(QuantizedFile, AnImatrixOfAnotherModelIsAnError) {
  const GgufFile file = input({{"blk.0.attn_q.weight"}, {"blk.0.attn_k.weight"}});
  const std::string path = folder_ + "/imatrix.gguf";
  Imatrix imatrix;
  imatrix.entries["blk.0.attn_q.weight"] = {std::vector<float>(100, 1.0F), {1.0F}};
  imatrix.write(path);
  EXPECT_THROW((void)quantize_model(file, out_, "Q4_K_S", {.imatrix = path}), Error);
  imatrix.entries.clear();
  imatrix.entries["blk.7.attn_q.weight"] = {std::vector<float>(256, 1.0F), {1.0F}};
  imatrix.write(path);
  EXPECT_THROW((void)quantize_model(file, out_, "Q4_K_S", {.imatrix = path}), Error);
  imatrix.entries["blk.0.attn_q.weight"] = {std::vector<float>(256, 1.0F), {1.0F}};
  imatrix.write(path);
  const QuantizeReport report = quantize_model(file, out_, "Q4_K_S", {.imatrix = path});
  ASSERT_EQ(report.warnings.size(), 1U);
  EXPECT_NE(report.warnings[0].find("lacks 1 of 2"), std::string::npos);
}

TEST_F(QuantizedFile, BytesDoNotDependOnThreads) {
  const GgufFile file = input({{"blk.0.attn_q.weight", 4096}, {"output.weight", 4096}});
  const auto bytes = [&](int threads) {
    quantize_model(file, out_, "Q3_K_M", {.threads = threads});
    std::ifstream in(out_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(bytes(1), bytes(2));
  EXPECT_EQ(bytes(1), bytes(7));
}

TEST(Quantize, RowsThatABlockDoesNotDivideTakeTheNextBestFormat) {
  const auto chosen = [](std::string_view type, int64_t cols, std::string_view name = "blk.0.attn_q.weight") {
    return choose_weight_type(type, name, Shape(2, cols), {.layers = 1}).dtype;
  };
  EXPECT_EQ(chosen("Q4_K", 512), DType::q4_k);
  EXPECT_EQ(chosen("Q2_K", 96), DType::q4_0);
  EXPECT_EQ(chosen("Q3_K_S", 96), DType::q4_0);
  EXPECT_EQ(chosen("Q4_K", 96), DType::q5_0);
  EXPECT_EQ(chosen("Q5_K_S", 96), DType::q5_1);
  EXPECT_EQ(chosen("Q6_K", 96), DType::q8_0);
  EXPECT_EQ(chosen("IQ4_XS", 96), DType::iq4_nl);
  EXPECT_EQ(chosen("IQ4_XS", 100), DType::f16);
  EXPECT_EQ(chosen("MXFP4", 100), DType::f16);
  EXPECT_EQ(chosen("Q2_K", 96, "output.weight"), DType::q8_0);
}

// Types of (values, down, attention's output) in some layers of a model of 32.
TEST(Quantize, MixesAreThoseOfTheirNames) {
  const auto chosen = [](std::string_view type, int layer, bool imatrix = false) {
    const auto of = [&](const char* part) {
      const std::string name = "blk." + std::to_string(layer) + "." + part + ".weight";
      return std::string(
          dtype_name(choose_weight_type(type, name, Shape(2, 256), {.layers = 32, .has_importance = imatrix}).dtype));
    };
    return of("attn_v") + " " + of("ffn_down") + " " + of("attn_output");
  };
  EXPECT_EQ(chosen("Q2_K", 9), "Q3_K Q3_K Q3_K");
  EXPECT_EQ(chosen("Q3_K_S", 0), "Q3_K Q3_K Q3_K");
  EXPECT_EQ(chosen("Q3_K_M", 1), "Q5_K Q5_K Q4_K");
  EXPECT_EQ(chosen("Q3_K", 2), "Q4_K Q4_K Q4_K");
  EXPECT_EQ(chosen("Q3_K_L", 9), "Q5_K Q5_K Q5_K");
  EXPECT_EQ(chosen("Q4_K_S", 3), "Q5_K Q5_K Q4_K");
  EXPECT_EQ(chosen("Q4_K_S", 4), "Q4_K Q4_K Q4_K");
  EXPECT_EQ(chosen("Q4_K_M", 5), "Q4_K Q4_K Q4_K");
  EXPECT_EQ(chosen("Q4_K_M", 6), "Q6_K Q6_K Q4_K");
  EXPECT_EQ(chosen("Q5_K_S", 0), "Q5_K Q5_K Q5_K");
  EXPECT_EQ(chosen("Q5_K_M", 31), "Q6_K Q6_K Q5_K");
  EXPECT_EQ(chosen("IQ4_NL", 0), "IQ4_NL Q5_K IQ4_NL");
  EXPECT_EQ(chosen("IQ4_NL", 0, true), "IQ4_NL IQ4_NL IQ4_NL");
  EXPECT_EQ(chosen("Q4_0", 0), "Q4_0 Q4_0 Q4_0");
  EXPECT_EQ(chosen("Q4_0", 0, true), "Q4_0 Q4_1 Q4_0");
  EXPECT_EQ(chosen("Q5_0", 3, true), "Q5_0 Q5_1 Q5_0");
  EXPECT_EQ(chosen("Q8_0", 0), "Q8_0 Q8_0 Q8_0");
}

TEST(Quantize, DeepModelsKeepSharedValuesInFiveBits) {
  const MixInput deep{.layers = 80, .queries_per_value = 8};
  EXPECT_EQ(choose_weight_type("Q4_K_M", "blk.11.attn_v.weight", Shape(2, 256), deep).dtype, DType::q5_k);
  EXPECT_EQ(choose_weight_type("Q4_K_M", "blk.11.attn_q.weight", Shape(2, 256), deep).dtype, DType::q4_k);
}

TEST(Quantize, ReportsProgressToTheEndAndWhatItWrote) {
  const std::string path = testing::TempDir() + "inferno_quantize_report.gguf";
  const GgufFile input = GgufFile::open(INFERNO_SOURCE_DIR "/tests/fixtures/llama.gguf");
  std::vector<uint64_t> done;
  uint64_t total = 0;
  testing::internal::CaptureStderr();
  const QuantizeReport report =
      quantize_model(input, path, "q4_k_m", {.threads = 1, .on_progress = [&](uint64_t now, uint64_t all) {
                                               done.push_back(now);
                                               total = all;
                                             }});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_GT(done.size(), 2U);
  EXPECT_EQ(done.front(), 0U);
  EXPECT_EQ(done.back(), total);
  EXPECT_TRUE(std::ranges::is_sorted(done));
  const GgufFile output = GgufFile::open(path);
  const ModelInfo written = inspect_model(output);
  EXPECT_EQ(report.bytes_in, input.file_bytes());
  EXPECT_EQ(report.bytes_out, output.file_bytes());
  EXPECT_FALSE(report.fallbacks.empty());
  ASSERT_EQ(report.types.size(), written.types.size());
  for (size_t i = 0; i < report.types.size(); ++i) {
    EXPECT_EQ(report.types[i].type, written.types[i].type);
    EXPECT_EQ(report.types[i].tensors, written.types[i].tensors);
    EXPECT_EQ(report.types[i].bytes, written.types[i].bytes);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace inferno
