// For tests: a Hugging Face folder written file by file.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "hf/json.h"

namespace inferno::hf {

struct TestTensor {
  std::string name;
  std::string dtype;  // "F32"
  std::vector<int64_t> shape;
  std::string bytes;
};

// A tensor of floats that count up from `first` in steps of 1/8, as F32 or BF16, which hold them exactly.
[[nodiscard]] TestTensor counting_tensor(const std::string& name, std::vector<int64_t> shape, float first,
                                         const std::string& dtype = "F32");
// Header and data, one tensor after another.
[[nodiscard]] std::string safetensors_bytes(const std::vector<TestTensor>& tensors);
// The same with a header of one's own.
[[nodiscard]] std::string safetensors_bytes(std::string_view header, std::string_view data);

// A folder of its own for each test, removed afterwards.
class FolderTest : public ::testing::Test {
 protected:
  FolderTest();
  ~FolderTest() override;
  FolderTest(const FolderTest&) = delete;
  FolderTest& operator=(const FolderTest&) = delete;

  void write(const std::string& name, std::string_view bytes) const;
  // A model of one layer: 2 heads of 4, 1 of keys, width 8, ffn 16, 6 tokens.
  void write_model(const std::string& model_type, const std::string& dtype = "F32") const;
  // What opening the folder says; empty: it can be opened.
  [[nodiscard]] std::string error() const;

  [[nodiscard]] static Json tiny_config(const std::string& model_type);
  [[nodiscard]] static std::vector<TestTensor> tiny_tensors(const std::string& dtype = "F32");
  [[nodiscard]] static Json tiny_tokenizer();

  std::string folder_;
};

}  // namespace inferno::hf
