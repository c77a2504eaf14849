// The engine against independent implementations: transformers in float64, and llama.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numbers>

#include "base/error.h"
#include "model/quantize_model.h"
#include "model_runs.h"
#include "support/devices.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

// Every backend that this machine can run.
std::vector<std::string> backends() {
  return backends_of({"scalar", "simd", "parallel", "cuda", "metal"});
}

// Null where a device says, when the model is loaded, that it lacks a kernel for it.
std::unique_ptr<Engine> engine_if_supported(const std::string& path, const std::string& backend, bool all_logits,
                                            int32_t logit_rows = 1) {
  EngineOptions options;
  options.backend = backend;
  options.kv_dtype = DType::f32;
  options.all_logits = all_logits;
  options.limits.max_logit_rows = logit_rows;
  try {
    return std::make_unique<Engine>(open_model(path), options);
  } catch (const Error& error) {
    if (std::string_view(error.what()).find("has no kernel for") == std::string_view::npos) throw;
    return nullptr;
  }
}

// The fixtures of both tools.
std::vector<nlohmann::json> fixture_models() {
  std::vector<nlohmann::json> models;
  for (const char* name : {"manifest.json", "families/manifest.json"}) {
    const nlohmann::json manifest = read_json(fixture(name));
    for (const auto& model : manifest["models"]) models.push_back(model);
  }
  EXPECT_EQ(models.size(), 21U);
  return models;
}

class Golden : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, Golden, ::testing::ValuesIn(backends()),
                         [](const auto& info) { return info.param; });

// The CPU's largest difference is 8e-5 (qwen35; others are below 4e-5); devices add in other orders.
TEST_P(Golden, FixtureLogitsAreTransformers) {
  const double limit = create_backend(GetParam())->cpu_numerics() ? 1e-4 : 2e-4;
  for (const nlohmann::json& model : fixture_models()) {
    auto engine = engine_if_supported(fixture(model["model"].get<std::string>()), GetParam(), true);
    if (engine == nullptr) continue;
    for (const auto& prompt : model["prompts"]) {
      const auto ids = prompt["ids"].get<std::vector<int32_t>>();
      const std::vector<float> expected = read_floats(fixture(prompt["logits"].get<std::string>()));
      const std::vector<float> actual = all_logits(*engine, ids);
      ASSERT_EQ(actual.size(), expected.size());
      EXPECT_LT(max_difference(actual, expected), limit) << model["name"] << " " << prompt["text"];
    }
  }
}

TEST_P(Golden, FixtureGreedyTokensAreTransformers) {
  for (const nlohmann::json& model : fixture_models()) {
    auto engine = engine_if_supported(fixture(model["model"].get<std::string>()), GetParam(), false);
    if (engine == nullptr) continue;
    for (const auto& prompt : model["prompts"]) {
      const Agreement agreement =
          greedy_agreement(*engine, prompt["ids"].get<std::vector<int32_t>>(),
                           prompt["greedy"].get<std::vector<int32_t>>(), prompt["margins"].get<std::vector<double>>());
      EXPECT_TRUE(agreement.margin_at_difference == INFINITY || agreement.margin_at_difference < 1e-3)
          << model["name"] << " diverges at " << agreement.tokens;
    }
  }
}

void check_tiny_qwen3(const std::string& folder, const std::string& backend) {
  const nlohmann::json reference = read_json(folder + "/reference.json");
  for (const auto& [type, prompts] : reference["models"].items()) {
    auto engine = make_engine(folder + "/tiny-qwen3-mini-" + type + ".gguf", backend, DType::f32, true);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const std::string stem = folder + "/logits-" + type + "-p" + std::to_string(i);
      const std::vector<float> exact = read_floats(stem + "-f64ref.bin");
      const std::vector<float> llama = read_floats(stem + "-llamacpp.bin");
      const std::vector<float> actual = all_logits(*engine, prompts[i]["tokens"].get<std::vector<int32_t>>());
      ASSERT_EQ(actual.size(), exact.size());
      if (type == "F32") {
        EXPECT_LT(max_difference(actual, exact), 1e-4);
      } else {
        EXPECT_LE(rms_difference(actual, exact), 1.25 * rms_difference(llama, exact)) << type << " prompt " << i;
      }
    }
  }
}

TEST_P(Golden, TinyQwen3LogitsAreAsCloseToExactAsLlamaCpps) {
  for (const std::string& folder : shipped_data("models/tiny-qwen3-mini")) check_tiny_qwen3(folder, GetParam());
}

TEST_P(Golden, Stories260kGreedyTokensAreLlamaCpps) {
  INFERNO_REQUIRE_TEST_DATA("models/stories260K");
  const std::string folder = find_data("models/stories260K/").at(0);
  const nlohmann::json reference = read_json(folder + "reference.json");
  auto engine = make_engine(folder + "stories260K-F32.gguf", GetParam());
  for (const auto& prompt : reference["models"]["F32"]["greedy"]) {
    const Agreement agreement = greedy_agreement(*engine, prompt["prompt_tokens"].get<std::vector<int32_t>>(),
                                                 prompt["greedy_tokens"].get<std::vector<int32_t>>());
    EXPECT_TRUE(agreement.margin_at_difference == INFINITY || agreement.margin_at_difference < 0.002)
        << prompt["prompt"] << " diverges at " << agreement.tokens << " with margin " << agreement.margin_at_difference;
  }
}

void check_tiny_books(const std::string& path, const std::string& backend, double rms_limit, double max_limit,
                      double margin_limit) {
  const nlohmann::json reference = read_json(shipped_data("models/tiny-books-26m/reference.json").at(0));
  auto engine = make_engine(path, backend);
  for (const auto& prompt : reference["prompts"]) {
    const auto ids = prompt["ids"].get<std::vector<int32_t>>();
    const auto expected = prompt["last_logits"].get<std::vector<float>>();
    BareSequence(*engine).forward(0, ids, 1);
    std::vector<float> made(expected.size());
    engine->decoder().download_logits(made);
    EXPECT_LE(rms_difference(made, expected), rms_limit) << prompt["prompt"];
    EXPECT_LE(max_difference(made, expected), max_limit) << prompt["prompt"];
    auto greedy = prompt["greedy"].get<std::vector<int32_t>>();
    // The scalar backend decodes about 20 tokens a second; INFERNO_TEST_FULL=1 lets it decode them all.
    if (backend == "scalar" && std::getenv("INFERNO_TEST_FULL") == nullptr) greedy.resize(8);
    const Agreement agreement = greedy_agreement(*engine, ids, greedy, prompt["margin"].get<std::vector<double>>());
    EXPECT_TRUE(agreement.margin_at_difference == INFINITY || agreement.margin_at_difference < margin_limit)
        << prompt["prompt"] << " diverges at " << agreement.tokens << ", margin " << agreement.margin_at_difference;
  }
}

TEST_P(Golden, TinyBooksIsTransformersWithinTheRoundingOfItsType) {
  if (is_emulated(GetParam())) GTEST_SKIP() << "too slow on an emulated GPU";
  if (kSanitized && GetParam() == "scalar") GTEST_SKIP() << "too slow under a sanitizer";
  // Q5_K: RMS differences are 0.14 to 0.19, and choices with a margin below 0.2 change.
  check_tiny_books(INFERNO_SOURCE_DIR "/models/tiny-books-26m.gguf", GetParam(), 0.25, INFINITY, 0.5);
  if (kSanitized) return;  // minutes, and the kernels' tests have these types
  for (const std::string& source : find_data("models/tiny-books-26m/tiny-books-26m-bf16.gguf")) {
    check_tiny_books(source, GetParam(), 0.03, INFINITY, 0.1);
    const std::string path = ::testing::TempDir() + "tiny-books-f32-" + GetParam() + ".gguf";
    quantize_model(GgufFile::open(source), path, "F32");
    check_tiny_books(path, GetParam(), 1e-3, 1e-3, 1e-3);
    std::remove(path.c_str());
  }
}

// The logits that follow the prompt and each of the further tokens but the last, [further, vocabulary].
std::vector<float> logits_along(Engine& engine, const std::vector<int32_t>& prompt, std::span<const int32_t> further) {
  const auto vocabulary = static_cast<size_t>(engine.model().config().vocabulary);
  std::vector<float> rows(further.size() * vocabulary);
  BareSequence sequence(engine);
  sequence.forward(0, prompt, 1);
  engine.decoder().download_logits(std::span(rows).first(vocabulary));
  if (further.size() > 1) {
    const auto count = static_cast<int32_t>(further.size()) - 1;
    sequence.forward(static_cast<int32_t>(prompt.size()), further.first(further.size() - 1), count);
    engine.decoder().download_logits(std::span(rows).subspan(vocabulary));
  }
  return rows;
}

// Real models, which `make model` fetches, on the backends that are fast enough.
class RealModels : public Golden {
 protected:
  // Greedy tokens are those of the reference up to a choice whose margin is within the noise of 8-bit activations, and
  // along the reference's tokens margins are off by no more than that noise.
  static void check_greedy(const std::string& model, const std::string& reference_file) {
    const std::string path = INFERNO_SOURCE_DIR "/models/" + model;
    if (!std::ifstream(path).good()) GTEST_SKIP() << "needs " << model << ", which `make model` fetches";
    if (GetParam() == "scalar" || is_emulated(GetParam()) || kSanitized) GTEST_SKIP() << "too slow on this backend";
    auto engine = engine_if_supported(path, GetParam(), false, 32);
    if (engine == nullptr) GTEST_SKIP() << "this backend lacks a kernel for " << model;
    const nlohmann::json reference = read_json(fixture(reference_file));
    const double noise = reference["noise_rms"].get<double>();
    EXPECT_EQ(reference["prompts"].size(), 20U);
    double squares = 0;
    double tokens = 0;
    for (const auto& prompt : reference["prompts"]) {
      const auto ids = prompt["ids"].get<std::vector<int32_t>>();
      const auto greedy = prompt["greedy"].get<std::vector<int32_t>>();
      const auto seconds = prompt["seconds"].get<std::vector<size_t>>();
      const auto margins = prompt["margins"].get<std::vector<double>>();
      const Agreement agreement = greedy_agreement(*engine, ids, greedy, margins);
      // Two logits, each off by noise of this size: almost three standard deviations of their difference.
      EXPECT_TRUE(agreement.margin_at_difference == INFINITY || agreement.margin_at_difference < 4 * noise)
          << prompt["text"] << " diverges at " << agreement.tokens << ", margin " << agreement.margin_at_difference;
      const std::vector<float> rows = logits_along(*engine, ids, greedy);
      const size_t vocabulary = rows.size() / greedy.size();
      for (size_t i = 0; i < greedy.size(); ++i) {
        const float* row = rows.data() + i * vocabulary;
        const double error = double{row[static_cast<size_t>(greedy[i])]} - row[seconds[i]] - margins[i];
        squares += error * error;
        tokens += 1;
      }
    }
    // Of two logits whose errors have nothing to do with each other.
    EXPECT_LT(std::sqrt(squares / tokens), std::numbers::sqrt2 * noise);
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, RealModels, ::testing::ValuesIn(backends()),
                         [](const auto& info) { return info.param; });

TEST_P(RealModels, SmolLm2ContinuesAsTransformersInFloat64) {
  check_greedy("smollm2-135m-instruct.gguf", "smollm2_greedy.json");
}

TEST_P(RealModels, Gemma3ContinuesAsTransformersInFloat64) {
  check_greedy("gemma3-270m.gguf", "gemma3-270m_greedy.json");
}

}  // namespace
}  // namespace inferno::testing
