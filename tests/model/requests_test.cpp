// Many requests over one scheduler: what must not change a result, and what must not break the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "backend/decorator.h"
#include "base/error.h"
#include "crowd_engine.h"
#include "support/allocations.h"

namespace inferno::testing {
namespace {

constexpr int32_t kPage = KvCache::kPageSize;

class Crowd : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, Crowd, ::testing::Values("scalar", "simd", "parallel"),
                         [](const auto& info) { return info.param; });

TEST_P(Crowd, EachOfManyRandomRequestsHasTheBitsOfTheSameRequestAlone) {
  const bool scalar = GetParam() == "scalar";
  const int32_t count = scalar ? 12 : 64;
  const EngineSetup setup{.backend = GetParam(), .sequences = 8, .context = 2048, .pages = 120, .latency_ms = 20};
  auto crowd = make(setup);
  auto alone = make({.backend = GetParam(), .sequences = 1, .context = 2048});
  const int32_t vocabulary = crowd->model().config().vocabulary;
  std::mt19937 random(11);
  struct Planned {
    Request request;
    int32_t arrives_at_step;
    int32_t stop_after;
    int32_t cancelled_at_step;  // -1: never
  };
  std::vector<Planned> planned;
  for (int32_t i = 0; i < count; ++i) {
    const auto length = static_cast<int32_t>(1 + random() % (random() % 4 == 0 && !scalar ? 1500 : 200));
    // Few seeds: some prompts begin like others.
    Request request =
        request_of(static_cast<int32_t>(random() % 6), length, static_cast<int32_t>(1 + random() % 40), vocabulary);
    request.sampling = {.temperature = static_cast<float>(random() % 3) * 0.5F,
                        .top_k = static_cast<int32_t>(random() % 3) * 20,
                        .top_p = random() % 2 == 0 ? 1.0F : 0.9F,
                        .repeat_penalty = random() % 2 == 0 ? 1.0F : 1.2F,
                        .seed = random()};
    request.samples = random() % 5 == 0 ? 3 : 1;
    request.top_logprobs = random() % 2 == 0 ? 2 : -1;
    request.reuse_prefix = random() % 4 != 0;
    request.recompute = length < 60 && random() % 10 == 0;
    planned.push_back({.request = std::move(request),
                       .arrives_at_step = static_cast<int32_t>(random() % 150),
                       .stop_after = random() % 6 == 0 ? 5 : -1,
                       .cancelled_at_step = random() % 8 == 0 ? static_cast<int32_t>(random() % 200) : -1});
  }
  std::vector<Outcome> together(planned.size());
  std::vector<std::shared_ptr<Ticket>> tickets(planned.size());
  for (int32_t step = 0; step < 160 || crowd->scheduler().stats().running + crowd->scheduler().stats().waiting > 0;
       ++step) {
    ASSERT_LT(step, 100000);
    for (size_t i = 0; i < planned.size(); ++i) {
      if (planned[i].arrives_at_step == step) {
        tickets[i] = submit_watched(*crowd, planned[i].request, together[i], planned[i].stop_after);
      }
      if (planned[i].cancelled_at_step == step && tickets[i]) tickets[i]->cancel();
    }
    crowd->scheduler().step();
  }
  run_all(*crowd);
  expect_all_pages_back(*crowd);
  int cut = 0;
  for (size_t i = 0; i < planned.size(); ++i) {
    Outcome expected;
    alone->cache().pool().clear();
    (void)submit_watched(*alone, planned[i].request, expected, planned[i].stop_after);
    run_all(*alone);
    const bool cancelled = std::ranges::any_of(tickets[i]->result().samples,
                                               [](const Completion& c) { return c.reason == StopReason::cancelled; });
    if (!cancelled || planned[i].cancelled_at_step < 0) {
      EXPECT_EQ(together[i], expected) << "request " << i;
      continue;
    }
    ++cut;
    for (size_t s = 0; s < together[i].ids.size(); ++s) {
      const std::vector<int32_t>& begun = together[i].ids[s];
      ASSERT_LE(begun.size(), expected.ids[s].size());
      EXPECT_TRUE(std::equal(begun.begin(), begun.end(), expected.ids[s].begin())) << "request " << i;
    }
  }
  if (!scalar) {
    EXPECT_GT(cut, 0) << "the test must cancel something";
    EXPECT_GT(crowd->scheduler().stats().reused_tokens, 0);
  }
}

TEST(Requests, APageBudgetForThreeOfTenRequestsFinishesAllOfThemWithTheSameBits) {
  constexpr int32_t kRequests = 10;
  // 200 + 120 tokens are 5 or 6 pages each.
  auto small = make({.sequences = kRequests, .pages = 17});
  auto alone = make({.sequences = 1});
  const int32_t vocabulary = small->model().config().vocabulary;
  const uint64_t budget = small->cache().bytes();
  std::vector<Outcome> together(kRequests);
  for (int32_t i = 0; i < kRequests; ++i) {
    Request request = request_of(i, 200, 120, vocabulary);
    request.sampling = {.temperature = 1, .seed = 5};
    (void)submit_watched(*small, std::move(request), together[static_cast<size_t>(i)]);
  }
  run_all(*small);
  EXPECT_EQ(small->cache().bytes(), budget);
  EXPECT_GT(small->scheduler().stats().preemptions, 0) << "the test must run out of pages";
  expect_all_pages_back(*small);
  for (int32_t i = 0; i < kRequests; ++i) {
    Outcome expected;
    Request request = request_of(i, 200, 120, vocabulary);
    request.sampling = {.temperature = 1, .seed = 5};
    (void)submit_watched(*alone, std::move(request), expected);
    run_all(*alone);
    EXPECT_EQ(together[static_cast<size_t>(i)], expected) << i;
  }
}

TEST(Requests, TheSamePromptAgainComputesOnlyItsLastTokenAndSaysSo) {
  auto engine = make({});
  const int32_t vocabulary = engine->model().config().vocabulary;
  const Request request = request_of(1, 300, 8, vocabulary);
  const RequestResult first = generate(*engine, request);
  EXPECT_EQ(first.metrics.reused_tokens, 0);
  EXPECT_EQ(first.metrics.reuse_end, ReuseEnd::unseen);
  const int64_t before = engine->scheduler().stats().prompt_tokens;
  const RequestResult second = generate(*engine, request);
  EXPECT_EQ(second.samples.front().ids, first.samples.front().ids);
  EXPECT_EQ(second.metrics.reused_tokens, 299);
  EXPECT_EQ(second.metrics.reuse_end, ReuseEnd::complete);
  EXPECT_EQ(engine->scheduler().stats().prompt_tokens - before, 1);

  Request longer = request;  // a conversation that goes on: the answer is cached too
  longer.prompt.insert(longer.prompt.end(), first.samples.front().ids.begin(), first.samples.front().ids.end());
  longer.prompt.push_back(1);
  EXPECT_GE(generate(*engine, longer).metrics.reused_tokens, 307);

  Request other = request;
  other.prompt[130] = (other.prompt[130] + 1) % vocabulary;
  const RequestResult differs = generate(*engine, other);
  EXPECT_EQ(differs.metrics.reuse_end, ReuseEnd::differs);
  EXPECT_EQ(differs.metrics.reused_tokens, 128);  // two pages; copying 2 positions would not pay

  Request salted = request;
  salted.cache_salt = "somebody else";
  EXPECT_EQ(generate(*engine, salted).metrics.reused_tokens, 0);
}

TEST(Requests, SamplesOfOnePromptHoldItsPagesOnceAndDrawByTheirIndex) {
  auto engine = make({.sequences = 8});
  const int32_t vocabulary = engine->model().config().vocabulary;
  constexpr int32_t kPrompt = 4 * kPage + 10;
  Request request = request_of(2, kPrompt, 20, vocabulary);
  request.samples = 8;
  request.sampling = {.temperature = 1, .seed = 3};
  int32_t most_held = 0;
  request.on_token = [&](const TokenEvent&) {
    const PagePool& pool = engine->cache().pool();
    most_held = std::max(most_held, pool.pages() - pool.available());
    return true;
  };
  const RequestResult result = generate(*engine, request);
  EXPECT_LE(most_held, 4 + 8);  // four full pages once, and what each sample goes on in
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(result.samples[i].ids, result.samples[j].ids);
  }
  Request single = request;
  single.samples = 1;
  single.on_token = {};
  EXPECT_EQ(generate(*engine, single).samples.front().ids, result.samples.front().ids);
  EXPECT_EQ(engine->scheduler().stats().prompt_tokens, kPrompt + 7 + 1);  // later samples: their last token
}

TEST(Requests, APrefixThatIsBeingComputedIsWaitedForAndComputedOnce) {
  // Steps of 64 tokens, so that the first prompt is not done when the others arrive.
  auto engine = make({.sequences = 4, .max_tokens = 64});
  const int32_t vocabulary = engine->model().config().vocabulary;
  std::vector<Outcome> outcomes(4);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 4; ++i) {
    requests.push_back(request_of(3, 5 * kPage, 4, vocabulary));
    for (int32_t j = 0; j < 20; ++j) requests.back().prompt.push_back(i + j);
    (void)submit_watched(*engine, requests.back(), outcomes[static_cast<size_t>(i)]);
  }
  run_all(*engine);
  EXPECT_LE(engine->scheduler().stats().prompt_tokens, 5 * kPage + 4 * 20);
  auto alone = make({.sequences = 1});
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(outcomes[i].ids.front(), generate(*alone, requests[i]).samples.front().ids);
  }
}

TEST(Requests, AnAwaitedPrefixWhoseOwnerIsCancelledIsComputedByTheNext) {
  auto engine = make({.sequences = 4, .max_tokens = 64});
  const int32_t vocabulary = engine->model().config().vocabulary;
  Outcome first;
  Outcome second;
  const auto owner = submit_watched(*engine, request_of(4, 300, 4, vocabulary), first);
  (void)submit_watched(*engine, request_of(4, 300, 4, vocabulary), second);
  engine->scheduler().step();
  engine->scheduler().step();
  owner->cancel();
  run_all(*engine);
  EXPECT_EQ(owner->result().samples.front().reason, StopReason::cancelled);
  EXPECT_EQ(second.ids.front().size(), 4U);
  expect_all_pages_back(*engine);
}

TEST(Requests, ADecodeStepOfSeveralAllocatesNothing) {
  for (const char* backend : {"simd", "parallel"}) {
    auto engine = make({.backend = backend, .sequences = 4});
    const int32_t vocabulary = engine->model().config().vocabulary;
    int32_t tokens = 0;
    for (int32_t i = 0; i < 4; ++i) {
      Request request = request_of(i, 30 + i, 300, vocabulary);
      request.sampling = {.temperature = 0.8F, .top_k = 40, .top_p = 0.9F, .repeat_penalty = 1.1F};
      request.top_logprobs = i == 0 ? 3 : -1;
      request.on_token = [&](const TokenEvent&) {
        ++tokens;
        return true;
      };
      (void)engine->scheduler().submit(std::move(request));
    }
    while (tokens < 40) engine->scheduler().step();
    const int64_t before = allocations();
    const int32_t begin = tokens;
    for (int32_t i = 0; i < 200; ++i) engine->scheduler().step();  // across ends of pages
    EXPECT_EQ(allocations(), before) << backend;
    EXPECT_EQ(tokens - begin, 800);
    run_all(*engine);
  }
}

TEST(Requests, ACancelIsSeenInTheQueueBetweenChunksAndBetweenTokens) {
  auto engine = make({.sequences = 1, .max_tokens = 32});
  const int32_t vocabulary = engine->model().config().vocabulary;
  for (int32_t steps = 0; steps < 16; ++steps) {  // 10 chunks of prompt, then tokens
    Outcome running;
    Outcome queued;
    const auto a = submit_watched(*engine, request_of(steps, 310, 100, vocabulary), running);
    const auto b = submit_watched(*engine, request_of(1000, 310, 100, vocabulary), queued);
    for (int32_t i = 0; i < steps; ++i) engine->scheduler().step();
    a->cancel();
    b->cancel();
    engine->scheduler().step();
    EXPECT_TRUE(a->is_done() && b->is_done()) << steps;
    EXPECT_EQ(a->result().samples.front().reason, StopReason::cancelled);
    expect_all_pages_back(*engine);
  }
}

TEST(Requests, ACallbackThatThrowsEndsItsOwnRequestWithItsException) {
  auto engine = make({});
  const int32_t vocabulary = engine->model().config().vocabulary;
  Outcome good;
  const auto other = submit_watched(*engine, request_of(1, 50, 20, vocabulary), good);
  for (const int where : {0, 1, 2, 3}) {
    Request bad = request_of(2, 50, 20, vocabulary);
    if (where == 0) bad.on_token = [](const TokenEvent&) -> bool { throw std::out_of_range("mine"); };
    if (where == 1) bad.on_finish = [](const RequestResult&) { throw std::out_of_range("mine"); };
    if (where == 2) {
      bad.logits_from = 0;
      bad.on_logits = [](int32_t, std::span<const float>) { throw std::out_of_range("mine"); };
    }
    if (where == 3) bad.on_prompt = [](const PromptProgress&) { throw std::out_of_range("mine"); };
    const auto ticket = engine->scheduler().submit(std::move(bad));
    engine->scheduler().run(*ticket);
    ASSERT_TRUE(ticket->result().error);
    EXPECT_THROW(std::rethrow_exception(ticket->result().error), std::out_of_range);
  }
  run_all(*engine);
  EXPECT_EQ(good.ids.front().size(), 20U);
  expect_all_pages_back(*engine);
}

// Throws in the step it is told to.
class Failing final : public BackendDecorator {
 public:
  using BackendDecorator::BackendDecorator;
  void end_step() override {
    BackendDecorator::end_step();
    if (countdown < 0) return;
    --countdown;
    if (countdown < 0) fail("the device was lost");
  }
  int countdown = -1;
};

TEST(Requests, ABackendThatFailsInAStepEndsTheRequestsOfThatStepAndServesTheNext) {
  Failing* failing = nullptr;
  auto engine = make({.decorate = [&](std::unique_ptr<Backend> inner) -> std::unique_ptr<Backend> {
    auto made = std::make_unique<Failing>(std::move(inner));
    failing = made.get();
    return made;
  }});
  const int32_t vocabulary = engine->model().config().vocabulary;
  const Request request = request_of(1, 100, 20, vocabulary);
  const std::vector<int32_t> expected = generate(*engine, request).samples.front().ids;
  engine->cache().pool().clear();
  failing->countdown = 5;
  EXPECT_THROW((void)generate(*engine, request), Error);
  expect_all_pages_back(*engine);
  EXPECT_EQ(generate(*engine, request).samples.front().ids, expected);
}

TEST(Requests, WhatCannotBeCarriedOutIsOneErrorAndTheOthersGoOn) {
  auto engine = make({.sequences = 2, .context = 512, .pages = 4});
  const int32_t vocabulary = engine->model().config().vocabulary;
  Outcome good;
  (void)submit_watched(*engine, request_of(1, 50, 60, vocabulary), good);
  const auto refused = [&](auto&& change) {
    Request request = request_of(2, 20, 5, vocabulary);
    change(request);
    EXPECT_THROW((void)engine->scheduler().submit(std::move(request)), Error);
  };
  refused([](Request& r) { r.prompt.clear(); });
  refused([](Request& r) { r.prompt.assign(513, 1); });
  refused([](Request& r) { r.prompt.assign(4 * kPage + 1, 1); });  // more than the cache holds
  refused([](Request& r) { r.prompt[3] = -1; });
  refused([&](Request& r) { r.prompt[3] = vocabulary; });
  refused([](Request& r) { r.samples = 0; });
  refused([](Request& r) { r.samples = 1 << 20; });
  refused([](Request& r) { r.max_new_tokens = -2; });
  refused([](Request& r) { r.sampling.temperature = NAN; });
  refused([](Request& r) { r.sampling.top_p = 5; });
  refused([](Request& r) { r.bias = {{.id = 1, .bias = NAN}}; });
  refused([&](Request& r) { r.bias = {{.id = vocabulary, .bias = 1}}; });
  refused([](Request& r) { r.top_logprobs = 1000; });
  refused([](Request& r) { r.logits_from = 0; });

  Request masked = request_of(3, 20, 5, vocabulary);
  const std::vector<uint32_t> nothing(static_cast<size_t>(vocabulary + 31) / 32, 0);
  masked.allowed = [&](int32_t, std::span<const int32_t>) { return std::span<const uint32_t>(nothing); };
  EXPECT_THROW((void)generate(*engine, masked), Error);
  masked.allowed = [&](int32_t, std::span<const int32_t>) { return std::span<const uint32_t>(nothing).first(1); };
  EXPECT_THROW((void)generate(*engine, masked), Error);
  masked.allowed = [](int32_t, std::span<const int32_t>) -> std::span<const uint32_t> { throw std::out_of_range("x"); };
  EXPECT_THROW((void)generate(*engine, masked), std::out_of_range);

  run_all(*engine);
  EXPECT_EQ(good.ids.front().size(), 60U);
  engine->scheduler().close();
  EXPECT_THROW((void)engine->scheduler().submit(request_of(1, 5, 5, vocabulary)), Error);
  expect_all_pages_back(*engine);
}

TEST(Requests, AFullContextIsTheReasonAndSoIsACacheThatHoldsNoMore) {
  auto engine = make({.sequences = 2, .context = 512});
  const int32_t vocabulary = engine->model().config().vocabulary;
  for (const int32_t wanted : {100, -1}) {
    const RequestResult full = generate(*engine, request_of(9, 500, wanted, vocabulary));
    EXPECT_EQ(full.samples.front().reason, StopReason::context_full);
    EXPECT_EQ(full.samples.front().ids.size(), 13U);  // 512 positions hold 500 + 12; a 13th is drawn from the last
  }
  auto small = make({.sequences = 2, .context = 512, .pages = 3});
  const RequestResult cut = generate(*small, request_of(9, 100, 400, vocabulary));
  EXPECT_EQ(cut.samples.front().reason, StopReason::context_full);
  EXPECT_EQ(cut.samples.front().ids.size(), 3U * kPage - 100 + 1);
}

TEST(Requests, LogitsOfAPromptComeOnceInOrderWhateverTheChunks) {
  auto whole = make({.sequences = 1});
  const int32_t vocabulary = whole->model().config().vocabulary;
  const auto logits_of = [&](Engine& engine) {
    std::vector<float> rows;
    Request request = request_of(5, 150, 0, vocabulary);
    request.logits_from = 100;
    request.on_logits = [&](int32_t first, std::span<const float> chunk) {
      EXPECT_EQ(static_cast<size_t>(first - 100) * static_cast<size_t>(vocabulary), rows.size());
      rows.insert(rows.end(), chunk.begin(), chunk.end());
    };
    (void)generate(engine, request);
    return rows;
  };
  const std::vector<float> expected = logits_of(*whole);
  EXPECT_EQ(expected.size(), 50U * static_cast<size_t>(vocabulary));
  EXPECT_EQ(logits_of(*whole), expected) << "and again from the cache";
  auto chunked = make({.sequences = 1, .max_tokens = 7});
  EXPECT_EQ(logits_of(*chunked), expected);
}

TEST(Requests, APromptTellsAfterEachChunkHowFarItIs) {
  auto engine = make({.sequences = 1, .max_tokens = 64});
  Request request = request_of(5, 150, 3, engine->model().config().vocabulary);
  std::vector<std::array<int32_t, 3>> seen;
  request.on_prompt = [&](const PromptProgress& p) { seen.push_back({p.total, p.reused, p.computed}); };
  (void)generate(*engine, request);
  using Seen = std::vector<std::array<int32_t, 3>>;
  EXPECT_EQ(seen, (Seen{{150, 0, 64}, {150, 0, 128}, {150, 0, 150}}));
  seen.clear();
  (void)generate(*engine, request);
  EXPECT_EQ(seen, (Seen{{150, 149, 150}})) << "and again from the cache";
}

TEST(Requests, AChunkBesideThoseThatDecodeFillsTheStepsTileOfTokens) {
  // A target that allows everything, where only a prompt's first chunk is small; and one that allows nothing.
  for (const double latency_ms : {1e6, 1e-3}) {
    auto engine = make({.sequences = 4, .latency_ms = latency_ms});
    Scheduler& scheduler = engine->scheduler();
    const int32_t vocabulary = engine->model().config().vocabulary;
    for (int32_t i = 0; i < 3; ++i) (void)scheduler.submit(request_of(i, 20, 60, vocabulary));
    while (scheduler.stats().generated_tokens < 6) scheduler.step();
    (void)scheduler.submit(request_of(9, 200, 4, vocabulary));
    int32_t chunks = 0;
    while (scheduler.step()) {
      const StepRecord record = scheduler.log().last(1).front();
      const StepRecord::Member& last = record.member[static_cast<size_t>(record.members - 1)];
      if (record.decodes == 0 || record.prompt_tokens == 0 || last.tokens == last.left) continue;
      EXPECT_EQ((record.decodes + record.prompt_tokens) % engine->backend().token_tile(), 0)
          << record.decodes << " decode beside " << record.prompt_tokens << " of the prompt, target " << latency_ms;
      ++chunks;
    }
    EXPECT_GT(chunks, 0);
  }
}

TEST(Requests, AChunkOfALongStepIsAtMostFourTimesTheOneBefore) {
  // Targets from that of a few tokens to that of all.
  for (const double latency_ms : {0.5, 1.0, 2.0, 4.0, 8.0, 16.0}) {
    auto engine = make({.sequences = 2, .latency_ms = latency_ms});
    Scheduler& scheduler = engine->scheduler();
    const int32_t vocabulary = engine->model().config().vocabulary;
    (void)scheduler.submit(request_of(0, 20, 60, vocabulary));
    while (scheduler.stats().generated_tokens < 6) scheduler.step();
    (void)scheduler.submit(request_of(9, 200, 4, vocabulary));
    int32_t before = 0;
    while (scheduler.step()) {
      const StepRecord record = scheduler.log().last(1).front();
      if (record.decodes == 0 || record.prompt_tokens == 0) continue;
      const bool is_long = record.expected_seconds >= record.target_seconds / 2;
      if (before > 0 && is_long) {
        EXPECT_LE(record.prompt_tokens, std::max(4 * before, Scheduler::kLeastChunk + engine->backend().token_tile()))
            << "target " << latency_ms << " ms";
      }
      before = record.prompt_tokens;
    }
    EXPECT_GT(before, 0);
  }
}

TEST(Requests, ManyThreadsSubmitAndCancelWhileOneRunsSteps) {
  auto engine = make({.sequences = 4});
  const int32_t vocabulary = engine->model().config().vocabulary;
  std::atomic<int> finished{0};
  constexpr int kThreads = 4;
  constexpr int kEach = 25;
  {
    std::atomic<bool> over{false};
    std::thread stepping([&] {
      while (!over) {
        if (engine->scheduler().wait_for_work(std::chrono::milliseconds(5))) engine->scheduler().step();
      }
    });
    std::vector<std::thread> clients;
    for (int t = 0; t < kThreads; ++t) {
      clients.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          const auto ticket = engine->scheduler().submit(request_of(t * kEach + i, 20 + i, 5, vocabulary));
          if (i % 3 == 0) ticket->cancel();
          ticket->wait();
          finished += 1;
        }
      });
    }
    for (std::thread& client : clients) client.join();
    over = true;
    stepping.join();
  }
  EXPECT_EQ(finished, kThreads * kEach);
  expect_all_pages_back(*engine);
}

}  // namespace
}  // namespace inferno::testing
