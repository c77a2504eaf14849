// Models with experts: bits that depend on nothing but the sequence, files in another form, and files that do not fit.
#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <map>

#include "base/error.h"
#include "model_runs.h"
#include "support/allocations.h"
#include "synthetic/synthetic_model.h"

namespace inferno::testing {
namespace {

// A model of random weights, of which some tensors are replaced.
class Edited final : public ModelFile {
 public:
  explicit Edited(std::string_view type) : base_(find_model_shape("tiny-moe"), type) {}

  void replace(const std::string& name, const Shape& shape, std::vector<std::byte> bytes = {}) {
    FileTensor& tensor = tensors_[name];
    tensor = base_.get_tensor(base_.find_tensor(name) != nullptr ? name : "blk.0.ffn_up_exps.weight");
    tensor.name = name;
    tensor.shape = shape;
    bytes_[name] = std::move(bytes);
  }
  // Gate and up of every layer in one tensor, as some files have them.
  void fuse_gate_and_up() {
    for (const std::string layer : {"blk.0.", "blk.1."}) {
      const FileTensor& gate = base_.get_tensor(layer + "ffn_gate_exps.weight");
      const FileTensor& up = base_.get_tensor(layer + "ffn_up_exps.weight");
      const int64_t experts = gate.shape[0];
      const size_t matrix = gate.bytes / static_cast<size_t>(experts);
      std::vector<std::byte> fused(2 * gate.bytes);
      for (size_t e = 0; e < static_cast<size_t>(experts); ++e) {
        base_.read_tensor(gate, std::span(fused).subspan(2 * e * matrix, matrix), e * matrix);
        base_.read_tensor(up, std::span(fused).subspan((2 * e + 1) * matrix, matrix), e * matrix);
      }
      replace(layer + "ffn_gate_up_exps.weight", Shape(experts, 2 * gate.shape[1], gate.shape[2]), std::move(fused));
    }
  }

  [[nodiscard]] const std::string& path() const override { return base_.path(); }
  [[nodiscard]] uint64_t file_bytes() const override { return base_.file_bytes(); }
  [[nodiscard]] std::span<const MetadataEntry> metadata() const override { return base_.metadata(); }
  [[nodiscard]] const MetadataValue* find(std::string_view key) const override { return base_.find(key); }
  [[nodiscard]] size_t tensor_count() const override { return base_.tensor_count(); }
  [[nodiscard]] const FileTensor& tensor(size_t index) const override { return base_.tensor(index); }
  [[nodiscard]] const FileTensor* find_tensor(std::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    return found == tensors_.end() ? base_.find_tensor(name) : &found->second;
  }
  void read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin) const override {
    const auto found = bytes_.find(tensor.name);
    if (found == bytes_.end()) return base_.read_tensor(tensor, out, begin);
    std::memcpy(out.data(), found->second.data() + begin, out.size());
  }

 private:
  SyntheticModel base_;
  std::map<std::string, FileTensor> tensors_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

EngineOptions options_of(const std::string& backend, int threads) {
  EngineOptions options;
  options.backend = backend;
  options.backend_options.threads = threads;
  options.kv_dtype = DType::f32;
  options.context = 128;
  options.all_logits = true;
  return options;
}

// More tokens than the tiles of any kernel have.
const std::vector<int32_t>& prompt() {
  static const std::vector<int32_t> tokens = tokens_of(1, 70, 1000);
  return tokens;
}

TEST(Experts, BitsDependOnNeitherChunksNorThreads) {
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_K", "IQ4_NL", "MXFP4"}) {
    const Edited file(type);
    for (const char* backend : {"scalar", "simd"}) {
      Engine engine(file, options_of(backend, 1));
      const std::vector<float> whole = all_logits(engine, prompt());
      EXPECT_EQ(all_logits(engine, prompt(), 1), whole) << type << ' ' << backend << ", one by one";
      EXPECT_EQ(all_logits(engine, prompt(), 7), whole) << type << ' ' << backend << ", in sevens";
      if (backend != std::string("simd")) continue;
      for (const int threads : {2, 5}) {  // threads steal from each other from 4 on
        Engine many(file, options_of("parallel", threads));
        EXPECT_EQ(all_logits(many, prompt()), whole) << type << ", " << threads << " threads";
        EXPECT_EQ(all_logits(many, prompt(), 1), whole) << type << ", " << threads << " threads, one by one";
      }
    }
  }
}

TEST(Experts, BitsDoNotDependOnBatchMates) {
  const Edited file("Q4_K");
  EngineOptions options = options_of("parallel", 2);
  options.limits = {.max_tokens = 256, .max_sequences = 3, .max_logit_rows = 128};
  options.all_logits = false;
  Engine engine(file, options);
  const std::vector<std::vector<int32_t>> prompts = {tokens_of(2, 1, 1000), tokens_of(3, 60, 1000),
                                                     tokens_of(4, 17, 1000)};
  std::vector<float> alone;
  for (const std::vector<int32_t>& ids : prompts) {
    const std::vector<float> rows = all_logits(engine, ids);
    alone.insert(alone.end(), rows.begin(), rows.end());
  }
  std::list<KvSequence> sequences;
  engine.decoder().clear();
  for (const std::vector<int32_t>& ids : prompts) {
    const auto count = static_cast<int32_t>(ids.size());
    KvSequence& sequence = sequences.emplace_back(engine.cache());
    ASSERT_TRUE(sequence.resize(count));
    engine.decoder().add(sequence, 0, ids, count);
  }
  engine.decoder().run();
  std::vector<float> together(alone.size());
  engine.decoder().download_logits(together);
  EXPECT_EQ(together, alone);
}

TEST(Experts, StepsOfAnySizeAllocateNothing) {
  const Edited file("Q4_K");
  Engine engine(file, options_of("parallel", 2));
  BareSequence sequence(engine);
  sequence.forward(0, prompt(), 1);
  int32_t position = static_cast<int32_t>(prompt().size());
  const int64_t before = allocations();
  for (const size_t count : {1, 1, 2, 17, 1}) {
    sequence.forward(position, std::span(prompt()).first(count), 1);
    position += static_cast<int32_t>(count);
  }
  EXPECT_EQ(allocations(), before);
}

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// The rest holds NaN, which would spread.
TEST(Experts, OnlyTheWeightsOfChosenExpertsAreRead) {
  Edited file("F32");
  std::vector<float> up(8 * 256 * 256, NAN);
  for (size_t i = 0; i < 3 * 256 * 256; ++i) up[i] = 0.01F * static_cast<float>(i % 17) - 0.08F;
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    file.replace(layer + "exp_probs_b.bias", Shape(8), bytes_of({9, 9, 9, 0, 0, 0, 0, 0}));
    file.replace(layer + "ffn_up_exps.weight", Shape(8, 256, 256), bytes_of(up));
  }
  for (const char* backend : {"scalar", "simd", "parallel"}) {
    Engine engine(file, options_of(backend, 2));
    for (const int32_t chunk : {1, 7, 0}) {
      for (const float logit : all_logits(engine, prompt(), chunk)) ASSERT_TRUE(std::isfinite(logit)) << backend;
    }
  }
}

TEST(Experts, GateAndUpInOneTensorAreTheSameModel) {
  for (const char* type : {"F32", "Q4_K"}) {
    const Edited apart(type);
    Edited fused(type);
    fused.fuse_gate_and_up();
    Engine a(apart, options_of("simd", 1));
    Engine b(fused, options_of("simd", 1));
    EXPECT_EQ(all_logits(a, prompt()), all_logits(b, prompt())) << type;
  }
}

TEST(Experts, TensorsThatDoNotFitAreErrorsNamingThem) {
  const auto error_of = [](const char* tensor, const Shape& shape) -> std::string {
    Edited file("F32");
    file.replace(tensor, shape);
    try {
      const Engine engine(file, options_of("scalar", 1));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string intro = "\"tiny-moe with random weights\": tensor ";
  EXPECT_EQ(error_of("blk.1.ffn_up_exps.weight", Shape(7, 256, 256)),
            intro + "blk.1.ffn_up_exps.weight has shape [7,256,256], the model's sizes need [8,256,256]");
  EXPECT_EQ(error_of("blk.0.ffn_down_exps.weight", Shape(int64_t{1} << 40, 256, 256)),
            intro + "blk.0.ffn_down_exps.weight has shape [1099511627776,256,256], the model's sizes need [8,256,256]");
  EXPECT_EQ(error_of("blk.0.ffn_gate_exps.weight", Shape(2048, 256)),
            intro + "blk.0.ffn_gate_exps.weight has shape [2048,256], the model's sizes need [8,256,256]");
  EXPECT_EQ(error_of("blk.0.ffn_gate_inp.weight", Shape(9, 256)),
            intro + "blk.0.ffn_gate_inp.weight has shape [9,256], the model's sizes need [8,256]");
  EXPECT_EQ(error_of("blk.0.ffn_gate_up_exps.weight", Shape(8, 256, 256)),
            intro + "blk.0.ffn_gate_up_exps.weight has shape [8,256,256], the model's sizes need [8,512,256]");
  EXPECT_EQ(error_of("blk.0.exp_probs_b.bias", Shape(7)),
            intro + "blk.0.exp_probs_b.bias has shape [7], the model's sizes need [8]");
  EXPECT_EQ(error_of("blk.0.ffn_up_exps.bias", Shape(8, 255)),
            "\"tiny-moe with random weights\" lacks the tensor \"blk.0.ffn_gate_exps.bias\"");
}

}  // namespace
}  // namespace inferno::testing
