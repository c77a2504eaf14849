#include <gtest/gtest.h>

#include <thread>

#include "inferno/inferno.h"

namespace inferno {
namespace {

const std::string kModel = INFERNO_SOURCE_DIR "/tests/fixtures/llama.gguf";

TEST(Api, GenerateStreamsExactlyTheTextItReturns) {
  Llm llm = Llm::load(kModel, {.backend = "scalar"});
  std::string streamed;
  const GenerateResult result = llm.generate("The sea", {.max_new_tokens = 20}, [&](std::string_view text) {
    streamed += text;
    return true;
  });
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.metrics.generated_tokens, static_cast<int32_t>(result.ids.size()));
  EXPECT_FALSE(result.ids.empty());
}

TEST(Api, ACallbackThatReturnsFalseEndsTheGeneration) {
  Llm llm = Llm::load(kModel, {.backend = "scalar"});
  int calls = 0;
  const GenerateResult result = llm.generate("The sea", {.max_new_tokens = 50}, [&](std::string_view) {
    ++calls;
    return false;
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(result.stop_reason, "cancelled");
}

TEST(Api, CancelFromAnotherThreadEndsTheGeneration) {
  Llm llm = Llm::load(kModel, {.backend = "scalar"});
  std::thread other;
  const GenerateResult result =
      llm.generate("The sea", {.max_new_tokens = 200, .temperature = 1}, [&](std::string_view) {
        if (!other.joinable()) other = std::thread([&] { llm.cancel(); });
        return true;
      });
  other.join();
  EXPECT_TRUE(result.stop_reason == "cancelled" || result.stop_reason == "end_token") << result.stop_reason;
}

TEST(Api, TokensLeadBackToTheText) {
  const Llm llm = Llm::load(kModel, {.backend = "scalar"});
  EXPECT_EQ(llm.detokenize(llm.tokenize("The old ship")), "The old ship");
}

TEST(Api, FailuresAreErrorsWithAMessage) {
  EXPECT_THROW((void)Llm::load("no/such/file.gguf"), Error);
  EXPECT_THROW((void)Llm::load(kModel, {.backend = "abacus"}), Error);
  EXPECT_THROW((void)Llm::load(kModel, {.kv_type = "q2"}), Error);
}

}  // namespace
}  // namespace inferno
