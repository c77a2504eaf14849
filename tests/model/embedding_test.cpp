// Embeddings and scores of pairs against transformers in float64 (tools/make_embedding_fixtures.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "engine/engine.h"
#include "gguf/gguf.h"
#include "support/devices.h"
#include "support/test_data.h"

namespace inferno {
namespace {

using nlohmann::json;

std::string path_of(const std::string& name) {
  return testing::find_data("embeddings/" + name).at(0);
}

json manifest() {
  std::ifstream file(path_of("manifest.json"));
  return json::parse(file);
}

std::unique_ptr<Engine> load(const std::string& model, const std::string& backend, int threads = 0) {
  EngineOptions options;
  options.backend = backend;
  options.backend_options.threads = threads;
  return std::make_unique<Engine>(GgufFile::open(path_of(model + ".gguf")), options);
}

EncoderText text_of(const json& row) {
  return {.ids = row["ids"].get<std::vector<int32_t>>(), .second = row.value("second", INT32_MAX)};
}

double distance(const std::vector<float>& a, const json& expected) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - expected[i].get<double>()));
  return most;
}

// By model, the largest difference of any text.
std::map<std::string, double> differences(const std::string& backend) {
  std::map<std::string, std::unique_ptr<Engine>> engines;
  std::map<std::string, double> worst;
  for (const json& row : manifest()) {
    const auto model = row["model"].get<std::string>();
    if (engines[model] == nullptr) engines[model] = load(model, backend);
    Embedder& embedder = engines[model]->embedder();
    const EncoderText text = text_of(row);
    double difference = INFINITY;
    if (row.contains("score")) {
      difference = std::abs(embedder.score(std::span(&text, 1))[0] - row["score"].get<double>());
    } else {
      const std::vector<float> vector = embedder.embed(std::span(&text, 1), {})[0];
      EXPECT_EQ(vector.size(), row["embedding"].size());
      if (vector.size() == row["embedding"].size()) difference = distance(vector, row["embedding"]);
    }
    worst[model] = std::max(worst[model], difference);
  }
  return worst;
}

TEST(Embeddings, EveryKindIsWhatTransformersMakesOfIt) {
  for (const std::string backend : {"scalar", "simd", "parallel"}) {
    for (const auto& [model, difference] : differences(backend)) {
      EXPECT_LE(difference, 5e-6) << model << " on " << backend;
      RecordProperty(backend + " " + model, std::to_string(difference));
    }
  }
}

TEST(Embeddings, EveryKindOnAGpuIsWhatTransformersMakesOfIt) {
  const std::vector<std::string> devices = device_backends();
  if (devices.empty()) GTEST_SKIP() << "no GPU";
  setenv("INFERNO_DEVICE_CHECK", "0", 1);  // nothing else runs in its place
  for (const std::string& device : devices) {
    for (const auto& [model, difference] : differences(device)) {
      EXPECT_LE(difference, 2e-5) << device << ", " << model;
      RecordProperty(device + " " + model, std::to_string(difference));
    }
  }
}

// The same bits whatever else is computed, in whatever order, and by however many threads.
TEST(Embeddings, BitsDependOnNothingButTheText) {
  for (const std::string model : {"bert", "nomic-bert", "modern-bert", "qwen3", "gemma-embedding"}) {
    std::vector<EncoderText> texts;
    for (const json& row : manifest()) {
      if (row["model"] == model) texts.push_back(text_of(row));
    }
    std::vector<EncoderText> crowd;
    for (int i = 0; i < 40; ++i) crowd.push_back(texts[static_cast<size_t>(i * 7 % 4)]);
    const auto alone = load(model, "simd");
    const auto together = load(model, "parallel", 2);
    const std::vector<std::vector<float>> all = together->embedder().embed(crowd, {});
    for (size_t i = 0; i < crowd.size(); ++i) {
      EXPECT_EQ(all[i], alone->embedder().embed(std::span(&crowd[i], 1), {})[0]) << model << " " << i;
    }
  }
}

TEST(Embeddings, LongTextsMakeTheEncoderGrowAndTooLongOnesAreOneLine) {
  const auto engine = load("bert", "simd");
  Embedder& embedder = engine->embedder();
  EXPECT_EQ(embedder.context(), 128);
  const std::vector<int32_t> ids(129, 7);
  EXPECT_THROW((void)embedder.encode(ids, false), Error);
  EXPECT_EQ(embedder.encode(ids, true).ids.size(), 128U);
  EXPECT_THROW((void)embedder.encode(std::vector<int32_t>{}, true), Error);
  EXPECT_THROW((void)embedder.encode(std::vector<int32_t>{96}, true), Error);
  EXPECT_THROW((void)embedder.encode(std::vector<int32_t>{-1}, true), Error);
}

TEST(Embeddings, SettingsAreFollowedOrRefused) {
  const auto engine = load("bert", "simd");
  Embedder& embedder = engine->embedder();
  const EncoderText text{.ids = {1, 5, 9, 2}};
  const auto embed = [&](const EmbedSettings& settings) { return embedder.embed(std::span(&text, 1), settings)[0]; };
  const std::vector<float> raw = embed({.normalize = false});
  const std::vector<float> unit = embed({});
  double squares = 0;
  for (const float v : raw) squares += static_cast<double>(v) * v;
  for (size_t i = 0; i < raw.size(); ++i) EXPECT_NEAR(raw[i] / std::sqrt(squares), unit[i], 1e-6);
  EXPECT_EQ(embed({.dimensions = 8}).size(), 8U);
  EXPECT_NE(embed({.pooling = Pooling::cls}), unit);
  EXPECT_THROW((void)embed({.dimensions = 33}), Error);
  EXPECT_THROW((void)embedder.score(std::span(&text, 1)), Error);
  EXPECT_THROW((void)load("bert-rank", "simd")->embedder().embed(std::span(&text, 1), {}), Error);
  EXPECT_THROW((void)pooling_from_name("max"), Error);
}

TEST(Embeddings, AnEndIsAskedForBeforeEachStep) {
  const auto engine = load("bert", "simd");
  const std::vector<EncoderText> texts(200, EncoderText{.ids = {1, 5, 9, 2}});
  int asked = 0;
  EXPECT_EQ(engine->embedder().embed(texts, {}, [&] { return ++asked > 10; }).size(), texts.size());
  EXPECT_GT(asked, 1);
  asked = 0;
  EXPECT_THROW((void)engine->embedder().embed(texts, {}, [&] { return ++asked > 1; }), Error);
  EXPECT_EQ(asked, 2);
}

TEST(Embeddings, AModelThatMakesTextNeedsAPoolingToBeChosen) {
  const std::string path = testing::find_data("models/tiny-qwen3-mini/tiny-qwen3-mini-Q4_0.gguf").at(0);
  Engine engine(GgufFile::open(path), EngineOptions{.backend = "simd"});
  const EncoderText text{.ids = {1, 5, 9, 2}};
  EXPECT_THROW((void)engine.embedder().embed(std::span(&text, 1), {}), Error);
  EXPECT_FALSE(engine.embedder().embed(std::span(&text, 1), {.pooling = Pooling::mean})[0].empty());
}

TEST(Embeddings, ModelsWithoutTextSaySo) {
  const auto engine = load("bert", "simd");
  EXPECT_FALSE(engine->makes_text());
  EXPECT_THROW((void)engine->driver(), Error);
  EXPECT_THROW((void)engine->cache(), Error);
  EXPECT_TRUE(load("qwen3", "simd")->makes_text());
}

// A fixture whose 32-bit value of a key is another one.
std::string patched(const std::string& model, const std::string& key, uint32_t value) {
  std::ifstream in(path_of(model + ".gguf"), std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const size_t at = bytes.find(key) + key.size() + 4;  // after the type
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  const std::string path = ::testing::TempDir() + "patched-embedding.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(Embeddings, HostileMetadataIsOneLine) {
  const std::vector<std::pair<std::string, std::string>> keys = {
      {"bert", "bert.pooling_type"},
      {"bert", "bert.attention.layer_norm_epsilon"},
      {"bert", "bert.context_length"},
      {"bert", "bert.embedding_length"},
      {"bert", "bert.block_count"},
      {"bert", "bert.attention.head_count"},
      {"bert", "bert.feed_forward_length"},
      {"modern-bert", "modern-bert.attention.sliding_window"},
      {"modern-bert", "modern-bert.rope.freq_base_swa"},
      {"nomic-bert", "nomic-bert.rope.freq_base"},
      {"gemma-embedding", "gemma-embedding.attention.sliding_window"}};
  for (const auto& [model, key] : keys) {
    for (const uint32_t value : {0U, 0xFFFFFFFFU, 0x7FC00000U}) {  // as floats: 0, and two that are no numbers
      if (key.ends_with("pooling_type") && value == 0) continue;   // not said
      const std::string path = patched(model, key, value);
      try {
        const Engine engine(GgufFile::open(path), EngineOptions{.backend = "simd"});
        ADD_FAILURE() << key << " " << value << " loads";
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      }
    }
  }
}

TEST(Embeddings, ThreadsTakeTurnsWithEachOtherAndWithGeneration) {
  const auto engine = load("qwen3", "simd");
  const EncoderText text{.ids = {1, 5, 9, 2}};
  const std::vector<float> expected = engine->embedder().embed(std::span(&text, 1), {})[0];
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) EXPECT_EQ(engine->embedder().embed(std::span(&text, 1), {})[0], expected);
    });
  }
  Request request;
  request.prompt = {1, 5, 9, 2};
  request.max_new_tokens = 60;
  request.text = false;
  (void)engine->driver().run(std::move(request));
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace inferno
