// Several requests at once through the public API.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "inferno/inferno.h"
#include "support/test_data.h"

namespace inferno {
namespace {

Llm load_for_four() {
  return Llm::load(testing::kLlamaFile, {.backend = "simd", .max_sequences = 4});
}

GenerateOptions options_of(int i) {
  return {.max_new_tokens = 6 + i % 5,
          .sampling = {.temperature = 0.9F, .seed = static_cast<uint64_t>(i)},
          .stop_at_end = false};
}
std::vector<int32_t> prompt_of(int i) {
  return {1, 10 + i, 20, 30 + i % 3};
}

TEST(ManyRequests, EachHasTheTextItHasAlone) {
  constexpr int kRequests = 12;
  std::vector<GenerateResult> alone;
  {
    Llm llm = load_for_four();
    for (int i = 0; i < kRequests; ++i) alone.push_back(llm.generate(prompt_of(i), options_of(i)));
  }
  Llm llm = load_for_four();
  std::vector<Generation> together;
  for (int i = 0; i < kRequests; ++i) together.push_back(llm.submit(prompt_of(i), options_of(i)));
  for (int i = 0; i < kRequests; ++i) {
    EXPECT_EQ(together[static_cast<size_t>(i)].result().ids(), alone[static_cast<size_t>(i)].ids()) << i;
  }
  EXPECT_EQ(llm.stats().finished_requests, kRequests);
}

TEST(ManyRequests, NextGivesTheWholeTextPieceByPiece) {
  Llm llm = load_for_four();
  const Generation generation = llm.submit("The sea", {.max_new_tokens = 20, .stop_at_end = false});
  std::string text;
  int pieces = 0;
  while (const std::optional<std::string> piece = generation.next()) {
    EXPECT_FALSE(piece->empty());
    text += *piece;
    ++pieces;
  }
  EXPECT_EQ(text, generation.result().text());
  EXPECT_GT(pieces, 0);
  EXPECT_TRUE(generation.is_done());
}

TEST(ManyRequests, OnStepComesOnceAfterTheTokensOfAStep) {
  // Both are called on the thread that computes.
  int tokens = 0;
  std::vector<int> tokens_of_steps;
  std::atomic<int> done{0};
  std::atomic<bool> submitted{false};  // all four: the first token waits for it
  {
    LoadOptions load{.backend = "simd", .max_sequences = 4};
    load.on_step = [&] { tokens_of_steps.push_back(std::exchange(tokens, 0)); };
    Llm llm = Llm::load(testing::kLlamaFile, load);
    std::vector<Generation> together;
    for (int i = 0; i < 4; ++i) {
      const GenerateOptions options{.max_new_tokens = 100, .stop_at_end = false};
      together.push_back(llm.submit(
          prompt_of(i), options,
          [&](const TokenEvent& token) {
            submitted.wait(false);
            return (tokens += token.id >= 0 ? 1 : 0) > 0;
          },
          [&] { ++done; }));
    }
    submitted = true;
    submitted.notify_all();
    for (const Generation& generation : together) generation.wait();
  }
  EXPECT_EQ(done, 4);
  EXPECT_EQ(std::accumulate(tokens_of_steps.begin(), tokens_of_steps.end(), 0), 4 * 100);
  EXPECT_LE(*std::max_element(tokens_of_steps.begin(), tokens_of_steps.end()), 4);
  EXPECT_GE(std::count(tokens_of_steps.begin(), tokens_of_steps.end(), 4), 1);
}

TEST(ManyRequests, EnqueuedOnesAreComputedOnTheThreadThatStepsAndHaveTheTextTheyHaveAlone) {
  Llm llm = load_for_four();
  const std::vector<int32_t> alone = llm.generate(prompt_of(1), options_of(1)).ids();
  std::vector<std::thread::id> threads;
  const auto note = [&](const TokenEvent&) {
    threads.push_back(std::this_thread::get_id());
    return true;
  };
  const Generation first = llm.enqueue(prompt_of(1), options_of(1), note);
  const Generation second = llm.enqueue(prompt_of(2), options_of(2), note);
  EXPECT_FALSE(first.is_done());
  while (llm.step()) {
  }
  EXPECT_TRUE(first.is_done() && second.is_done());
  EXPECT_EQ(first.result().ids(), alone);
  EXPECT_FALSE(threads.empty());
  EXPECT_EQ(std::ranges::count(threads, std::this_thread::get_id()), std::ssize(threads));
  EXPECT_FALSE(llm.step());
}

TEST(ManyRequests, AnEnqueuedOneThatIsWaitedForNeedsNobodyWhoSteps) {
  Llm llm = load_for_four();
  EXPECT_EQ(llm.enqueue(prompt_of(3), options_of(3)).result().ids().size(), 9U);
  const Generation read = llm.enqueue("The sea", {.max_new_tokens = 6, .stop_at_end = false});
  while (read.next()) {
  }
  EXPECT_TRUE(read.is_done());
  EXPECT_FALSE(llm.step()) << "a thread of the library's own computes now";
}

TEST(ManyRequests, StepInACallbackIsAnErrorAndEndsThatRequestAlone) {
  Llm llm = load_for_four();
  const Generation wrong = llm.enqueue(prompt_of(0), options_of(0), [&](const TokenEvent&) { return llm.step(); });
  const Generation other = llm.enqueue(prompt_of(1), options_of(1));
  while (llm.step()) {
  }
  EXPECT_THROW((void)wrong.result(), Error);
  EXPECT_EQ(other.result().ids().size(), 7U);
}

TEST(ManyRequests, GenerateAndSubmitFromSeveralThreadsAllFinish) {
  constexpr int kThreads = 4;
  constexpr int kEach = 6;
  std::vector<std::vector<int32_t>> alone;
  {
    Llm llm = load_for_four();
    for (int i = 0; i < kThreads * kEach; ++i) alone.push_back(llm.generate(prompt_of(i), options_of(i)).ids());
  }
  Llm llm = load_for_four();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int j = 0; j < kEach; ++j) {
        const int i = t * kEach + j;
        const GenerateResult result =
            j % 2 == 0 ? llm.generate(prompt_of(i), options_of(i)) : llm.submit(prompt_of(i), options_of(i)).result();
        if (result.ids() != alone[static_cast<size_t>(i)]) wrong.fetch_add(1);
        (void)llm.stats();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(ManyRequests, ASubmitInACallbackRunsAfterTheGenerateThatMadeIt) {
  Llm llm = load_for_four();
  std::optional<Generation> inner;
  const GenerateResult outer =
      llm.generate("The sea", {.max_new_tokens = 4, .stop_at_end = false}, [&](const TokenEvent&) {
        if (!inner) inner = llm.submit("The ship", {.max_new_tokens = 3, .stop_at_end = false});
        return true;
      });
  EXPECT_EQ(outer.ids().size(), 4U);
  EXPECT_EQ(inner->result().ids().size(), 3U);
}

TEST(ManyRequests, CancelFromAnotherThreadEndsWhatRuns) {
  Llm llm = load_for_four();
  const GenerateOptions endless{.max_new_tokens = -1, .stop_at_end = false};
  std::thread other;
  const GenerateResult result = llm.generate("The sea", endless, [&](const TokenEvent&) {
    if (!other.joinable()) other = std::thread([&] { llm.cancel(); });
    return true;
  });
  other.join();
  EXPECT_TRUE(result.reason() == StopReason::cancelled || result.reason() == StopReason::context_full);
  // What comes afterwards is not cancelled.
  EXPECT_EQ(llm.generate("The sea", {.max_new_tokens = 2, .stop_at_end = false}).reason(), StopReason::length);
}

TEST(ManyRequests, CancelAtAnyMomentEndsThatRequestAlone) {
  Llm llm = load_for_four();
  const Generation stays = llm.submit(prompt_of(0), {.max_new_tokens = 40, .stop_at_end = false});
  for (int i = 0; i < 30; ++i) {
    const Generation goes = llm.submit(prompt_of(i), {.max_new_tokens = -1, .stop_at_end = false});
    if (i % 3 == 1) std::this_thread::yield();
    if (i % 3 == 2) (void)goes.next();
    goes.cancel();
    const GenerateResult result = goes.result();
    EXPECT_TRUE(result.reason() == StopReason::cancelled || result.reason() == StopReason::context_full);
  }
  EXPECT_EQ(stays.result().ids().size(), 40U);
}

TEST(ManyRequests, TheEndOfTheLlmEndsItsRequestsAndHandlesStayReadable) {
  std::optional<Generation> generation;
  {
    Llm llm = load_for_four();
    generation = llm.submit("The sea", {.max_new_tokens = -1, .stop_at_end = false});
  }
  EXPECT_TRUE(generation->is_done());
  const StopReason reason = generation->result().reason();
  EXPECT_TRUE(reason == StopReason::cancelled || reason == StopReason::context_full);
}

TEST(ManyRequests, NothingRunsWhileThereIsNothingToDo) {
  Llm llm = load_for_four();
  llm.submit("The sea", {.max_new_tokens = 2}).wait();
  const auto cpu_seconds = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(cpu_seconds() - before, 0.02);
}

}  // namespace
}  // namespace inferno
