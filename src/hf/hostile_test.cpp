// Safetensors files, indexes and small files made to do harm: an Error of one line, or a model that can be read.
#include <algorithm>
#include <cstring>
#include <random>

#include "base/error.h"
#include "hf/hf_folder.h"
#include "hf/safetensors.h"
#include "hf/test_folder.h"

namespace inferno::hf {
namespace {

class HostileTest : public FolderTest {
 protected:
  void expect_refused(const std::string& bytes, const std::string& what) {
    write_model("qwen3");
    write("model.safetensors", bytes);
    const std::string message = error();
    EXPECT_FALSE(message.empty()) << what;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  // Opens the folder and reads all tensors.
  void use() const {
    try {
      const HfFolder file = HfFolder::open(folder_);
      for (size_t i = 0; i < file.tensor_count(); ++i) {
        std::vector<std::byte> bytes(file.tensor(i).bytes);
        file.read_tensor(file.tensor(i), bytes);
      }
      if (file.has_vocabulary()) (void)file.vocabulary();
    } catch (const Error& error) {
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    }
  }
};

constexpr const char* kBadHeaders[] = {
    "",
    "{",
    "[]",
    "7",
    R"({"a": 3})",
    R"({"a": []})",
    R"({"a": {}})",
    R"({"": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})",
    R"({"a": {"dtype": "U8", "shape": [4]}})",
    R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0]}})",
    R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4, 8]}})",
    R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 17]}})",
    R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [4, 0]}})",
    R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [-4, 0]}})",
    R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 5]}})",
    R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [18446744073709551612, 18446744073709551615]}})",
    R"({"a": {"dtype": "U8", "shape": [4.0], "data_offsets": [0, 4]}})",
    R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}})",
    R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}})",
    R"({"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}})",
    R"({"a": {"dtype": 3, "shape": [1], "data_offsets": [0, 4]}})",
    R"({"a": {"dtype": "U8", "dtype": "I8", "shape": [4], "data_offsets": [0, 4]}})",
    R"({"a": {"dtype": "U8", "shape": [4], "shape": [4], "data_offsets": [0, 4]}})",
    R"({"a": {"dtype": "U8", "shape": [1,1,1,1,1,1,1,1,4], "data_offsets": [0, 4]}})",
    R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4], "more": 1}})",
    R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [3, 7]}})",
    R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})",
};

TEST_F(HostileTest, HeadersThatBreakTheFormatAreRefused) {
  for (const char* header : kBadHeaders) {
    EXPECT_THROW(parse_safetensors_header(header, 8 + std::string_view(header).size() + 16, "x"), Error) << header;
    expect_refused(safetensors_bytes(header, std::string(16, 'x')), header);
  }
}

TEST_F(HostileTest, LengthsThatLieAreRefused) {
  const std::string good = safetensors_bytes(tiny_tensors());
  expect_refused("", "empty");
  expect_refused(good.substr(0, 7), "no length");
  for (const size_t cut : {size_t{8}, size_t{9}, size_t{100}, good.size() - 1})
    expect_refused(good.substr(0, cut), "cut");
  for (const uint64_t length : {uint64_t{0}, uint64_t{1} << 20, uint64_t{100'000'001}, uint64_t{1} << 63, UINT64_MAX}) {
    std::string bytes = good;
    std::memcpy(bytes.data(), &length, sizeof(length));
    expect_refused(bytes, std::to_string(length));
  }
}

TEST_F(HostileTest, NamesMayAppearOnceInAFileAndAcrossShards) {
  const std::string entry = R"("a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]})";
  expect_refused(safetensors_bytes("{" + entry + "," + entry + "}", ""), "twice");
  EXPECT_NE(error().find("twice"), std::string::npos) << error();
  write_model("qwen3");
  write("a.safetensors", safetensors_bytes(tiny_tensors()));
  write("b.safetensors", safetensors_bytes(tiny_tensors()));
  write("model.safetensors.index.json", R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})");
  EXPECT_NE(error().find("twice"), std::string::npos) << error();
}

TEST_F(HostileTest, ShardsGiveTheSameModelAsOneFile) {
  write_model("qwen3");
  const HfFolder whole = HfFolder::open(folder_);
  std::vector<TestTensor> first = tiny_tensors();
  std::vector<TestTensor> second(first.begin() + 5, first.end());
  first.resize(5);
  write("model-00001-of-00002.safetensors", safetensors_bytes(first));
  write("model-00002-of-00002.safetensors", safetensors_bytes(second));
  write("model.safetensors.index.json",
        R"({"metadata": {"total_size": 1}, "weight_map": {"a": "model-00001-of-00002.safetensors",
            "b": "model-00002-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"}})");
  const HfFolder split = HfFolder::open(folder_);
  EXPECT_EQ(split.files().size(), 2U);
  ASSERT_EQ(split.tensor_count(), whole.tensor_count());
  for (size_t i = 0; i < whole.tensor_count(); ++i) {
    std::vector<std::byte> expected(whole.tensor(i).bytes);
    std::vector<std::byte> found(expected.size());
    whole.read_tensor(whole.tensor(i), expected);
    split.read_tensor(split.get_tensor(whole.tensor(i).name), found);
    EXPECT_EQ(found, expected) << whole.tensor(i).name;
  }
}

TEST_F(HostileTest, NamesOfShardsStayInTheFolder) {
  write_model("qwen3");
  for (const char* name : {"../x.safetensors", "/etc/passwd", "a/b.safetensors", ".hidden.safetensors", "", "x.bin",
                           "a\\u0000.safetensors", "no.safetensors"}) {
    write("model.safetensors.index.json", std::string(R"({"weight_map": {"a": ")") + name + "\"}}");
    EXPECT_FALSE(error().empty()) << name;
  }
  for (const char* index : {"", "[]", "{}", R"({"weight_map": 3})", R"({"weight_map": {"a": 3}})",
                            R"({"weight_map": {}})", R"({"weight_map": {"a": {"b": "c"}}})"}) {
    write("model.safetensors.index.json", index);
    EXPECT_FALSE(error().empty()) << index;
  }
}

TEST_F(HostileTest, OffsetsNeedNoAlignment) {
  std::vector<TestTensor> tensors = tiny_tensors();
  tensors.insert(tensors.begin(), {"model.visual.odd", "U8", {3}, "xyz"});
  write_model("qwen3");
  write("model.safetensors", safetensors_bytes(tensors));
  const HfFolder file = HfFolder::open(folder_);
  std::vector<float> norm(8);
  file.read_tensor(file.get_tensor("blk.0.attn_norm.weight"), std::as_writable_bytes(std::span(norm)));
  EXPECT_EQ(norm[1], 0.625F);
}

TEST_F(HostileTest, WrongTypesAndShapesAreRefused) {
  write_model("llama");
  for (const TestTensor& wrong :
       {TestTensor{"model.norm.weight", "I64", {1}, "12345678"}, TestTensor{"model.norm.weight", "F32", {0}, ""},
        TestTensor{"model.norm.weight", "F32", {1, 1, 1, 1, 1}, "1234"},
        TestTensor{"model.norm.weight", "F32", {}, "1234"},
        counting_tensor("model.layers.0.self_attn.q_proj.weight", {3, 8}, 0)}) {
    std::vector<TestTensor> tensors = tiny_tensors();
    std::erase_if(tensors, [&](const TestTensor& tensor) { return tensor.name == wrong.name; });
    tensors.push_back(wrong);
    write("model.safetensors", safetensors_bytes(tensors));
    EXPECT_NE(error().find(wrong.name), std::string::npos) << error();
  }
}

TEST_F(HostileTest, DeepAndLongDocumentsAreRefused) {
  write_model("qwen3");
  const std::string deep(100'000, '[');
  std::string many = "{\"x\": [";
  for (size_t i = 0; i < kMaxTreeValues; ++i) many += "0,";
  many += "0]}";
  for (const std::string& text : {deep, "{\"a\": " + deep, many}) {
    write("config.json", text);
    EXPECT_FALSE(error().empty());
  }
  write_model("qwen3");
  for (const std::string& text : {deep, "{\"model\": " + deep, "{\"normalizer\": " + many + "}"}) {
    write("tokenizer.json", text);
    EXPECT_FALSE(error().empty());
  }
}

TEST_F(HostileTest, AFolderThatIsNoModelSaysWhatToDo) {
  EXPECT_NE(error().find("config.json"), std::string::npos) << error();
  write("config.json", tiny_config("qwen3").dump());
  EXPECT_NE(error().find("model.safetensors"), std::string::npos) << error();
}

// Any bytes in any of the files: never more than an Error.
TEST_F(HostileTest, ChangedFilesAreReadOrRefused) {
  std::mt19937_64 random(20261117);
  const std::string files[] = {tiny_config("qwen3").dump(), safetensors_bytes(tiny_tensors("BF16")),
                               tiny_tokenizer().dump(), R"({"eos_token_id": [4, 1], "do_sample": true, "top_k": 3})",
                               R"({"eos_token": "<end>", "chat_template": [{"name": "default", "template": "x"}]})"};
  const char* names[] = {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json",
                         "tokenizer_config.json"};
  for (size_t i = 0; i < std::size(names); ++i) write(names[i], files[i]);
  for (int round = 0; round < 1500; ++round) {
    const size_t which = random() % std::size(names);
    std::string bytes = files[which];
    const size_t head = which == 1 ? 1200 : bytes.size();
    for (uint64_t change = random() % 3 + 1; change > 0; --change) {
      const size_t at = random() % std::min(head, bytes.size());
      constexpr std::string_view kTexts[] = {"9",   "-", "0", "\"", "{", "}", "[", "]", ",", "18446744073709551615",
                                             "null"};
      if (random() % 3 == 0) {
        bytes[at] = static_cast<char>(random());
      } else if (random() % 2 == 0) {
        bytes.erase(at, random() % 4 + 1);
      } else {
        bytes.insert(at, kTexts[random() % std::size(kTexts)]);
      }
      if (bytes.empty()) bytes = "{";
    }
    write(names[which], bytes);
    use();
    write(names[which], files[which]);
  }
}

}  // namespace
}  // namespace inferno::hf
