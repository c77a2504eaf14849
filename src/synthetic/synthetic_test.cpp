// Models without files: that they are what a file would be, and that they run.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "backend/factory.h"
#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "model/config.h"
#include "model/tensor_names.h"
#include "synthetic/model_run.h"
#include "synthetic/model_shapes.h"
#include "synthetic/random_weight.h"
#include "synthetic/synthetic_model.h"
#include "tensor/half.h"

namespace inferno {
namespace {

ModelShape tiny() {
  return find_model_shape("tiny");
}

std::vector<std::byte> bytes_of(const ModelFile& file, std::string_view name) {
  const FileTensor& tensor = file.get_tensor(name);
  std::vector<std::byte> bytes(tensor.bytes);
  file.read_tensor(tensor, bytes);
  return bytes;
}

std::vector<int32_t> prompt_of(int32_t count, int32_t seed = 0) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((i * 131 + seed * 31 + 17) % 1000);
  return tokens;
}

TEST(RandomWeight, AnyPartReadInAnyOrderHasTheSameBytes) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::q8_0, DType::q4_k}) {
    const RandomWeight weight(dtype, Shape(7, 512), 3);
    std::vector<std::byte> whole(static_cast<size_t>(7 * row_bytes(dtype, 512)));
    weight.read(0, whole);
    for (const auto& [begin, size] : std::vector<std::pair<size_t, size_t>>{{0, 1}, {5, 600}, {37, 3}, {101, 999}}) {
      std::vector<std::byte> part(size);
      weight.read(begin, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<ptrdiff_t>(begin)))
          << dtype_name(dtype) << " at " << begin;
    }
  }
}

TEST(RandomWeight, ValuesHaveTheDeviationThatKeepsProductsNearOne) {
  for (const int64_t cols : {64, 90, 1024}) {
    const RandomWeight weight(DType::f32, Shape(200, cols), 1);
    std::vector<float> values(static_cast<size_t>(200 * cols));
    weight.read(0, std::as_writable_bytes(std::span(values)));
    double sum = 0;
    double squares = 0;
    for (const float value : values) {
      sum += value;
      squares += double{value} * value;
    }
    const auto n = static_cast<double>(values.size());
    EXPECT_NEAR(squares / n * static_cast<double>(cols), 1, 0.05) << cols;
    EXPECT_NEAR(sum / n * std::sqrt(static_cast<double>(cols)), 0, 0.05) << cols;
  }
}

TEST(SyntheticModel, OneSeedGivesOneModelAndAnotherAnother) {
  const SyntheticModel a(tiny(), "Q8_0", 1);
  const SyntheticModel again(tiny(), "Q8_0", 1);
  const SyntheticModel b(tiny(), "Q8_0", 2);
  std::set<std::vector<std::byte>> matrices;
  for (size_t i = 0; i < a.tensor_count(); ++i) {
    const std::string& name = a.tensor(i).name;
    EXPECT_EQ(bytes_of(a, name), bytes_of(again, name)) << name;
    EXPECT_NE(bytes_of(a, name), bytes_of(b, name)) << name;
    EXPECT_TRUE(matrices.insert(bytes_of(a, name)).second) << name << " repeats another tensor";
  }
}

TEST(SyntheticModel, EveryShapeHasTheConfigOfItsArchitecture) {
  for (const char* name : {"qwen3-0.6b", "qwen3-8b", "qwen2-0.5b", "llama-3.2-1b", "qwen3-30b-a3b-8l", "tiny-moe",
                           "qwen3.5-0.8b", "tiny-qwen3.5", "gemma-3-1b", "tiny"}) {
    const ModelShape& shape = find_model_shape(name);
    const ModelConfig config = read_config(SyntheticModel(shape, "Q4_0"));
    EXPECT_EQ(config.layers.size(), shape.layers);
    EXPECT_EQ(static_cast<uint32_t>(config.vocabulary), shape.vocabulary);
    const ExpertsConfig& experts = config.layers.back().experts;
    EXPECT_EQ(static_cast<uint32_t>(experts.count), shape.experts);
    EXPECT_EQ(static_cast<uint32_t>(shape.experts > 0 ? experts.ffn : config.layers.back().ffn), shape.ffn);
    EXPECT_EQ(config.layers[0].qk_norm == QkNorm::heads,
              shape.architecture.starts_with("qwen3") || shape.architecture == "gemma3");
    EXPECT_EQ(static_cast<uint32_t>(config.layers[0].window), shape.window);
    EXPECT_EQ(config.layers[0].qkv_bias, shape.architecture == "qwen2");
    EXPECT_EQ(config.ropes[0].factors.empty(), shape.architecture != "llama");
    EXPECT_EQ(static_cast<uint32_t>(config.layers[0].recurrent.head_dim), shape.state_dim);
  }
}

TEST(SyntheticModel, AMixHasItsTypes) {
  const SyntheticModel model(tiny(), "Q4_K_M");
  EXPECT_EQ(model.get_tensor(kEmbeddingTensor).dtype, DType::q6_k);
  EXPECT_EQ(model.get_tensor(layer_tensor_name(0, "attn_q.weight")).dtype, DType::q4_k);
  EXPECT_EQ(model.get_tensor(layer_tensor_name(1, "attn_v.weight")).dtype, DType::q6_k);
  EXPECT_EQ(model.get_tensor(layer_tensor_name(1, "attn_norm.weight")).dtype, DType::f32);
}

TEST(SyntheticModel, TheVocabularyIsWhole) {
  const Vocabulary vocabulary = SyntheticModel(tiny(), "F32").vocabulary();
  EXPECT_EQ(vocabulary.size(), 1000);
  EXPECT_EQ(vocabulary.eos, 999);
}

// As the decoder sees it: logits of a prompt and of decode steps after it.
std::vector<float> logits_of(std::string_view backend_name, const ModelFile& file, int steps = 2) {
  const auto backend = create_backend(backend_name);
  ModelRun run(*backend, file, {.context = 96, .kv = DType::f32});
  std::vector<float> all;
  run.prefill(0, prompt_of(70));
  for (int i = 0; i <= steps; ++i) {
    if (i > 0) run.decode(1);
    const std::vector<float> logits = run.logits();
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

double nmse(const std::vector<float>& reference, const std::vector<float>& tested) {
  double errors = 0;
  double squares = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    errors += std::pow(double{tested[i]} - reference[i], 2);
    squares += std::pow(double{reference[i]}, 2);
  }
  return errors / squares;
}

TEST(SyntheticModel, WrittenToAFileItGivesTheSameLogits) {
  const SyntheticModel model(tiny(), "Q8_0");
  const std::string path = testing::TempDir() + "inferno_synthetic_test.gguf";
  GgufWriter writer(path);
  for (const MetadataEntry& entry : model.metadata()) writer.set(entry.key, entry.value);
  for (size_t i = 0; i < model.tensor_count(); ++i) {
    const FileTensor& tensor = model.tensor(i);
    writer.add_tensor(tensor.name, *tensor.dtype, tensor.shape);
  }
  for (size_t i = 0; i < model.tensor_count(); ++i) writer.write_data(bytes_of(model, model.tensor(i).name));
  writer.finish();
  EXPECT_EQ(logits_of("scalar", model), logits_of("scalar", GgufFile::open(path)));
  std::remove(path.c_str());
}

// Layers of their own numbers of heads and rows: buffers fit the widest, tensors and ops each layer.
TEST(Layers, OfDifferentSizesGiveTheSameLogitsOnEveryBackend) {
  ModelShape shape = tiny();
  shape.layers = 3;
  const auto sizes = [](std::vector<int32_t> values) { return MetadataValue(MetadataArray{std::move(values)}); };
  const SyntheticModel model(
      shape, "F32", 1,
      {{"qwen3.attention.head_count", sizes({4, 12, 8})}, {"qwen3.feed_forward_length", sizes({512, 256, 768})}});
  EXPECT_EQ(model.get_tensor(layer_tensor_name(1, "attn_output.weight")).shape, Shape(256, 12 * 64));
  EXPECT_EQ(model.get_tensor(layer_tensor_name(2, "ffn_down.weight")).shape, Shape(256, 768));
  const std::vector<float> reference = logits_of("scalar", model);
  EXPECT_LE(nmse(reference, logits_of("parallel", model)), 1e-9);
  BackendOptions primitives;
  primitives.fused = false;
  const auto backend = create_backend("scalar", primitives);
  ModelRun run(*backend, model, {.context = 96, .kv = DType::f32});
  run.prefill(0, prompt_of(70));
  const std::vector<float> defined = run.logits();
  EXPECT_LE(nmse(defined, {reference.begin(), reference.begin() + static_cast<ptrdiff_t>(defined.size())}), 1e-9);
}

// One rotation for all layers, a second one, none: each changes the result, and layers of one rotation share a table.
TEST(Layers, HaveARotationOfTheirOwnOrNone) {
  const SyntheticModel model(tiny(), "F32");
  const auto backend = create_backend("scalar");
  ModelConfig config = read_config(model);
  const auto key_row = [&](const ModelConfig& c, int32_t layer, bool fused) {
    BackendOptions options;
    options.fused = fused;
    const auto own = create_backend("parallel", options);
    const Model loaded(*own, model, c, 64);
    KvCache cache(*own, {.layers = {{4, 64}, {4, 64}}, .dtype = DType::f32, .max_positions = 64});
    Decoder decoder(*own, loaded, cache, {.max_tokens = 8});
    KvSequence sequence(cache);
    EXPECT_TRUE(sequence.resize(8));
    decoder.add(sequence, 0, prompt_of(8), 1);
    decoder.run();
    std::vector<float> row(64);  // of position 7, head 0
    const KvLayerView view = cache.layer(layer);
    own->download(row.data(), static_cast<const char*>(view.k) + view.row_offset(7, 0), row.size() * sizeof(float));
    return row;
  };
  for (const bool fused : {true, false}) {
    const std::vector<float> rotated = key_row(config, 0, fused);
    ModelConfig changed = config;
    changed.layers[0].rope = kNoRope;
    const std::vector<float> plain = key_row(changed, 0, fused);
    EXPECT_NE(plain, rotated);
    // A rotation keeps the length of every pair (i, i + 32).
    for (size_t i = 0; i < 32; ++i) {
      EXPECT_NEAR(std::hypot(plain[i], plain[i + 32]), std::hypot(rotated[i], rotated[i + 32]), 1e-4);
    }
    changed = config;
    changed.ropes.push_back(changed.ropes[0]);
    changed.ropes[1].base = 100;
    changed.layers[1].rope = 1;
    EXPECT_EQ(key_row(changed, 0, fused), rotated);
    EXPECT_NE(key_row(changed, 1, fused), key_row(config, 1, fused));
  }
  const Model loaded(*backend, model, config, 64);
  EXPECT_EQ(loaded.rope(0).table.data, loaded.rope(1).table.data);
  config.layers[1].rope = kNoRope;
  EXPECT_TRUE(Model(*backend, model, config, 64).rope(1).table.empty());
}

TEST(ModelRun, SequencesStepTogetherAsTheyDoAlone) {
  const SyntheticModel model(tiny(), "Q8_0");
  const auto backend = create_backend("simd");
  ModelRun together(*backend, model, {.context = 96, .max_sequences = 3, .kv = DType::f32});
  for (int32_t s = 0; s < 3; ++s) together.prefill(s, prompt_of(20 + s, s));
  std::vector<std::vector<int32_t>> drawn(3);
  for (int step = 0; step < 4; ++step) {
    together.decode(3);
    for (size_t s = 0; s < 3; ++s) drawn[s].push_back(together.sampled()[s]);
  }
  ModelRun alone(*backend, model, {.context = 96, .kv = DType::f32});
  for (int32_t s = 0; s < 3; ++s) {
    alone.reset();
    alone.prefill(0, prompt_of(20 + s, s));
    for (size_t step = 0; step < 4; ++step) {
      alone.decode(1);
      EXPECT_EQ(alone.sampled()[0], drawn[static_cast<size_t>(s)][step]) << "sequence " << s << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace inferno
