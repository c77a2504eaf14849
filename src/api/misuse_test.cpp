// What callers do wrong is one Error, and the model goes on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "inferno/inferno.h"
#include "support/test_data.h"

namespace inferno {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The message of the usage Error that the call ends with.
template <typename Call>
std::string usage_error(Call call) {
  try {
    (void)call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(Misuse, SamplingOutOfRangeIsAnError) {
  Llm llm = Llm::load(testing::kLlamaFile, {.backend = "scalar"});
  const auto generate = [&](const SamplingSettings& sampling) {
    return usage_error([&] { return llm.generate("The sea", {.max_new_tokens = 1, .sampling = sampling}); });
  };
  EXPECT_EQ(generate({.temperature = -1}).substr(0, 11), "temperature");
  EXPECT_EQ(generate({.temperature = kNan}).substr(0, 11), "temperature");
  EXPECT_EQ(generate({.temperature = 1, .top_k = -1}).substr(0, 5), "top_k");
  EXPECT_EQ(generate({.temperature = 1, .top_p = 5}).substr(0, 5), "top_p");
  EXPECT_EQ(generate({.temperature = 1, .top_p = kNan}).substr(0, 5), "top_p");
  EXPECT_EQ(generate({.temperature = 1, .min_p = 2}).substr(0, 5), "min_p");
  EXPECT_EQ(generate({.temperature = 1, .min_p = kNan}).substr(0, 5), "min_p");
  EXPECT_EQ(generate({.repeat_penalty = 0}).substr(0, 14), "repeat_penalty");
  EXPECT_EQ(generate({.presence_penalty = kNan}).substr(0, 16), "presence_penalty");
  EXPECT_EQ(generate({.penalty_window = -2}).substr(0, 14), "penalty_window");
  EXPECT_FALSE(llm.generate("The sea", {.max_new_tokens = 1}).ids().empty());
}

TEST(Misuse, RequestsThatCannotBeCarriedOutAreErrorsAtOnce) {
  Llm llm = Llm::load(testing::kLlamaFile, {.backend = "scalar"});
  const auto refuses = [&](const Prompt& prompt, const GenerateOptions& options) {
    EXPECT_THROW((void)llm.submit(prompt, options), Error);
    EXPECT_THROW((void)llm.generate(prompt, options), Error);
  };
  refuses(std::vector<int32_t>{}, {});
  refuses(std::vector<int32_t>{-1}, {});
  refuses(std::vector<int32_t>{llm.vocabulary()}, {});
  refuses(std::vector<int32_t>(static_cast<size_t>(llm.context()) + 1, 1), {});
  refuses("a", {.max_new_tokens = -2});
  refuses("a", {.samples = 0});
  refuses("a", {.samples = -5, .top_logprobs = 1});
  refuses("a", {.top_logprobs = 1000});
  refuses("a", {.stop = {""}});
  refuses("a", {.logit_bias = {{0, kNan}}});
  EXPECT_THROW((void)llm.logits("The sea", 1000), Error);
  EXPECT_THROW((void)llm.chat({}), Error);
}

TEST(Misuse, LoadOptionsOutOfRangeAreErrors) {
  const auto load = [](const LoadOptions& options) {
    return usage_error([&] { return Llm::load(testing::kLlamaFile, options); });
  };
  EXPECT_EQ(load({.threads = -1}).substr(0, 9), "`threads`");
  EXPECT_EQ(load({.context = -1}).substr(0, 9), "`context`");
  EXPECT_EQ(load({.max_sequences = 0}).substr(0, 15), "`max_sequences`");
  EXPECT_EQ(load({.max_token_latency_ms = kNan}).substr(0, 22), "`max_token_latency_ms`");
  EXPECT_EQ(load({.kv_type = "q2"}).substr(0, 9), "`kv_type`");
  EXPECT_EQ(load({.affinity = "everywhere"}).substr(0, 10), "`affinity`");
  EXPECT_NE(load({.backend = "abacus"}).find("unknown backend"), std::string::npos);
  EXPECT_THROW((void)Llm::load("no/such/file.gguf"), Error);
  EXPECT_THROW((void)plan_model(testing::kLlamaFile, {}, {.prompt_tokens = -1}), Error);
  EXPECT_THROW((void)quantize_model(testing::kLlamaFile, "/dev/null/x", "q8_0", {.threads = -1}), Error);
  EXPECT_THROW((void)bench_model(testing::kLlamaFile, {}, {.batches = {}}), Error);
}

TEST(Misuse, GenerateInsideItsOwnCallbackIsAnError) {
  Llm llm = Llm::load(testing::kLlamaFile, {.backend = "scalar"});
  std::string message;
  const GenerateResult result = llm.generate("The sea", {.max_new_tokens = 3}, [&](const TokenEvent&) {
    message = usage_error([&] { return llm.generate("The ship", {.max_new_tokens = 1}); });
    return true;
  });
  EXPECT_NE(message.find("callback"), std::string::npos) << message;
  EXPECT_EQ(result.metrics.generated_tokens, 3);
  // The same where the library's own thread computes.
  std::string other;
  const Generation generation = llm.submit("The sea", {.max_new_tokens = 2}, [&](const TokenEvent&) {
    other = usage_error([&] { return llm.logits("The ship"); });
    return true;
  });
  EXPECT_EQ(generation.result().metrics.generated_tokens, 2);
  EXPECT_NE(other.find("callback"), std::string::npos) << other;
}

TEST(Misuse, AnExceptionInACallbackEndsThatGenerationAlone) {
  Llm llm = Llm::load(testing::kLlamaFile, {.backend = "scalar"});
  const Generation other = llm.submit("The ship", {.max_new_tokens = 5});
  const auto throws = [](const TokenEvent&) -> bool { throw std::runtime_error("enough"); };
  EXPECT_THROW((void)llm.generate("The sea", {}, throws), std::runtime_error);
  EXPECT_EQ(other.result().metrics.generated_tokens, 5);
}

TEST(Misuse, AnLlmThatWasMovedFromIsAnError) {
  Llm llm = Llm::load(testing::kLlamaFile, {.backend = "scalar"});
  Llm moved = std::move(llm);
  EXPECT_NE(usage_error([&] { return llm.generate("The sea"); }).find("moved from"), std::string::npos);
  EXPECT_THROW((void)llm.submit("The sea"), Error);
  EXPECT_THROW((void)llm.tokenize("The sea"), Error);
  EXPECT_THROW((void)llm.vocabulary(), Error);
  EXPECT_THROW((void)llm.stats(), Error);
  llm.cancel();
  EXPECT_FALSE(moved.generate("The sea", {.max_new_tokens = 1}).ids().empty());
  llm = std::move(moved);
  EXPECT_FALSE(llm.generate("The sea", {.max_new_tokens = 1}).ids().empty());
}

// In the child of a process whose model has threads: all of it must be refused, and nothing may hang.
TEST(Misuse, AChildAfterForkGetsAnErrorAndEnds) {
  Llm llm = Llm::load(testing::kLlamaFile, {.backend = "parallel", .threads = 2});
  const Generation before = llm.submit("The sea", {.max_new_tokens = 2});
  before.wait();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    int refused = 0;
    {
      Llm inherited = std::move(llm);
      const auto refuses = [&](auto call) {
        try {
          call();
        } catch (const Error&) {
          ++refused;
        }
      };
      refuses([&] { (void)inherited.generate("The sea"); });
      refuses([&] { (void)inherited.submit("The sea"); });
      refuses([&] { (void)inherited.vocabulary(); });
    }  // the destructor must not wait for threads that are not here
    ::_exit(refused == 3 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(llm.generate("The sea", {.max_new_tokens = 1}).ids().empty());
}

}  // namespace
}  // namespace inferno
