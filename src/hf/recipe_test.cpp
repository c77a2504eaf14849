// Tensors come out of stored ones element by element as the family's file has them.
#include <algorithm>
#include <cstring>

#include "hf/hf_folder.h"
#include "hf/test_folder.h"
#include "tensor/half.h"

namespace inferno::hf {
namespace {

class RecipeTest : public FolderTest {
 protected:
  static std::vector<float> floats_of(const HfFolder& file, const std::string& name) {
    const FileTensor& tensor = file.get_tensor(name);
    std::vector<std::byte> bytes(tensor.bytes);
    file.read_tensor(tensor, bytes);
    std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      if (tensor.dtype == DType::f32) {
        std::memcpy(&values[i], bytes.data() + i * 4, 4);
      } else {
        bf16 half{};
        std::memcpy(&half, bytes.data() + i * 2, 2);
        values[i] = to_float(half);
      }
    }
    return values;
  }

  // Every way to cut a tensor gives the same bytes.
  static void expect_any_cut_alike(const HfFolder& file) {
    for (size_t i = 0; i < file.tensor_count(); ++i) {
      const FileTensor& tensor = file.tensor(i);
      std::vector<std::byte> whole(tensor.bytes);
      file.read_tensor(tensor, whole);
      for (const uint64_t piece : {uint64_t{1}, uint64_t{7}, uint64_t{48}}) {
        std::vector<std::byte> parts(tensor.bytes);
        for (uint64_t begin = 0; begin < tensor.bytes; begin += piece) {
          const uint64_t count = std::min(piece, tensor.bytes - begin);
          file.read_tensor(tensor, std::span(parts).subspan(begin, count), begin);
        }
        EXPECT_EQ(parts, whole) << tensor.name << " in pieces of " << piece;
      }
    }
  }

  void write_with(const std::string& model_type, const Json& settings, std::vector<TestTensor> more,
                  const std::string& dtype = "F32") {
    Json config = tiny_config(model_type);
    config.update(settings);
    std::vector<TestTensor> tensors = tiny_tensors(dtype);
    for (TestTensor& tensor : more) {
      std::erase_if(tensors, [&](const TestTensor& other) { return other.name == tensor.name; });
      tensors.push_back(std::move(tensor));
    }
    write("config.json", config.dump());
    write("model.safetensors", safetensors_bytes(tensors));
  }
};

float counted(float first, size_t index) {
  return first + 0.125F * static_cast<float>(index % 64);
}

TEST_F(RecipeTest, MatricesAreUsedAsStoredAndVectorsAreF32) {
  write_model("qwen3", "BF16");
  const HfFolder file = HfFolder::open(folder_);
  EXPECT_EQ(file.get_tensor("blk.0.attn_q.weight").dtype, DType::bf16);
  EXPECT_EQ(file.get_tensor("blk.0.attn_norm.weight").dtype, DType::f32);
  EXPECT_EQ(file.get_uint("general.file_type"), 32U);
  const std::vector<float> norm = floats_of(file, "blk.0.attn_norm.weight");
  const std::vector<float> up = floats_of(file, "blk.0.ffn_up.weight");
  for (size_t i = 0; i < norm.size(); ++i) EXPECT_EQ(norm[i], counted(0.5, i));
  for (size_t i = 0; i < up.size(); ++i) EXPECT_EQ(up[i], counted(-5, i));
  expect_any_cut_alike(file);
}

TEST_F(RecipeTest, RowsOfLlamasHeadsArePairsInTheFile) {
  write_model("llama");
  const HfFolder file = HfFolder::open(folder_);
  const std::vector<float> q = floats_of(file, "blk.0.attn_q.weight");
  constexpr size_t kFrom[] = {0, 2, 1, 3, 4, 6, 5, 7};
  for (size_t row = 0; row < 8; ++row) {
    for (size_t column = 0; column < 8; ++column) EXPECT_EQ(q[row * 8 + column], counted(-1, kFrom[row] * 8 + column));
  }
  expect_any_cut_alike(file);
}

TEST_F(RecipeTest, GemmasNormsHaveOneAdded) {
  write_with("gemma3", {{"sliding_window", 8}},
             {counting_tensor("model.layers.0.pre_feedforward_layernorm.weight", {8}, 3)});
  const HfFolder file = HfFolder::open(folder_);
  EXPECT_EQ(floats_of(file, "blk.0.attn_norm.weight")[1], 1.625F);
  EXPECT_EQ(floats_of(file, "blk.0.ffn_norm.weight")[0], 4.0F);
  EXPECT_EQ(floats_of(file, "output_norm.weight")[0], 2.0F);
  EXPECT_EQ(floats_of(file, "blk.0.attn_q.weight")[0], -1.0F);
}

TEST_F(RecipeTest, ExpertsAreStackedInOrderOfTheirNumbers) {
  std::vector<TestTensor> experts = {counting_tensor("model.layers.0.mlp.gate.weight", {11, 8}, 0)};
  for (int e = 10; e >= 0; --e) {
    experts.push_back(counting_tensor("model.layers.0.mlp.experts." + std::to_string(e) + ".up_proj.weight", {4, 8},
                                      static_cast<float>(e)));
  }
  const Json settings = {{"num_experts", 11}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 4}};
  write_with("qwen3_moe", settings, experts);
  const HfFolder file = HfFolder::open(folder_);
  EXPECT_EQ(file.get_tensor("blk.0.ffn_up_exps.weight").shape, Shape(11, 4, 8));
  const std::vector<float> up = floats_of(file, "blk.0.ffn_up_exps.weight");
  for (size_t e = 0; e < 11; ++e) EXPECT_EQ(up[e * 32 + 3], counted(static_cast<float>(e), 3));
  expect_any_cut_alike(file);
  experts.pop_back();  // of expert 0
  write_with("qwen3_moe", settings, experts);
  EXPECT_NE(error().find("lacks expert 0"), std::string::npos) << error();
}

TEST_F(RecipeTest, ExpertsOfGptOssAreTransposedAndTakenApart) {
  write_with("gpt_oss", {{"num_local_experts", 2}},
             {counting_tensor("model.layers.0.mlp.experts.gate_up_proj", {2, 3, 8}, 0),
              counting_tensor("model.layers.0.mlp.experts.gate_up_proj_bias", {2, 8}, 1)});
  const HfFolder file = HfFolder::open(folder_);
  const std::vector<float> gate = floats_of(file, "blk.0.ffn_gate_exps.weight");
  const std::vector<float> up = floats_of(file, "blk.0.ffn_up_exps.weight");
  const std::vector<float> bias = floats_of(file, "blk.0.ffn_up_exps.bias");
  ASSERT_EQ(gate.size(), 24U);
  for (size_t e = 0; e < 2; ++e) {
    for (size_t row = 0; row < 4; ++row) {
      for (size_t column = 0; column < 3; ++column) {
        const size_t stored = e * 24 + column * 8 + 2 * row;
        EXPECT_EQ(gate[(e * 4 + row) * 3 + column], counted(0, stored));
        EXPECT_EQ(up[(e * 4 + row) * 3 + column], counted(0, stored + 1));
      }
      EXPECT_EQ(bias[e * 4 + row], counted(1, e * 8 + 2 * row + 1));
    }
  }
  expect_any_cut_alike(file);
}

TEST_F(RecipeTest, BlocksOfMxfp4KeepTheirValues) {
  std::string blocks;
  for (int i = 0; i < 2 * 2 * 16; ++i) blocks += static_cast<char>(i * 7);
  write_with("gpt_oss", {{"num_local_experts", 1}},
             {{"model.layers.0.mlp.experts.down_proj_blocks", "U8", {1, 2, 2, 16}, blocks},
              {"model.layers.0.mlp.experts.down_proj_scales", "U8", {1, 2, 2}, "\x7f\x80\x81\x82"}});
  const HfFolder file = HfFolder::open(folder_);
  const FileTensor& tensor = file.get_tensor("blk.0.ffn_down_exps.weight");
  EXPECT_EQ(tensor.shape, Shape(1, 2, 64));
  ASSERT_EQ(tensor.dtype, DType::mxfp4);
  std::vector<std::byte> bytes(tensor.bytes);
  file.read_tensor(tensor, bytes);
  for (size_t b = 0; b < 4; ++b) {
    EXPECT_EQ(bytes[b * 17], static_cast<std::byte>(0x7f + b));
    for (size_t i = 0; i < 32; ++i) {
      const auto stored = static_cast<uint8_t>(blocks[b * 16 + i / 2]);
      const auto made = static_cast<uint8_t>(bytes[b * 17 + 1 + i % 16]);
      EXPECT_EQ(i < 16 ? made & 15 : made >> 4, i % 2 == 0 ? stored & 15 : stored >> 4) << b << ", " << i;
    }
  }
  expect_any_cut_alike(file);
}

TEST_F(RecipeTest, Fp8IsMultipliedByTheScaleOfItsBlock) {
  std::string bytes;
  for (int i = 0; i < 64; ++i) bytes += static_cast<char>(i % 2 == 0 ? 0x38 : 0xc1);  // 1 and -2.25
  const std::string name = "model.layers.0.self_attn.o_proj.weight";
  const Json settings = {{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {4, 2}}}}};
  write_with("qwen3", settings, {{name, "F8_E4M3", {8, 8}, bytes}, counting_tensor(name + "_scale_inv", {2, 4}, 1)},
             "BF16");
  const HfFolder file = HfFolder::open(folder_);
  EXPECT_EQ(file.get_tensor("blk.0.attn_output.weight").dtype, DType::bf16);
  const std::vector<float> values = floats_of(file, "blk.0.attn_output.weight");
  for (size_t row = 0; row < 8; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      const float scale = counted(1, row / 4 * 4 + column / 2);
      EXPECT_EQ(values[row * 8 + column], to_float(to_bf16((column % 2 == 0 ? 1.0F : -2.25F) * scale)));
    }
  }
  expect_any_cut_alike(file);
  write_with("qwen3", settings, {{name, "F8_E4M3", {8, 8}, bytes}, counting_tensor(name + "_scale_inv", {2, 3}, 1)});
  EXPECT_NE(error().find("does not fit"), std::string::npos) << error();
}

TEST_F(RecipeTest, TensorsOfSightAndLaterLayersAreLeftOutAndUnknownOnesAreErrors) {
  write_with("qwen3", Json::object(),
             {counting_tensor("model.visual.patch.weight", {2, 2}, 0),
              counting_tensor("model.layers.1.input_layernorm.weight", {8}, 0)});
  EXPECT_EQ(HfFolder::open(folder_).tensor_count(), 11U);
  write_with("qwen3", Json::object(), {counting_tensor("model.layers.0.mlp.side_proj.weight", {2, 2}, 0)});
  EXPECT_NE(error().find("side_proj"), std::string::npos) << error();
}

}  // namespace
}  // namespace inferno::hf
