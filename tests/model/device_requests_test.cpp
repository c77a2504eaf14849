// Many requests over one scheduler on a device, whose products are rounded differently in batches of other sizes: a
// request in a crowd follows the same request alone up to a near tie.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "model_runs.h"

namespace inferno::testing {
namespace {

struct Text {
  std::vector<int32_t> ids;
  std::vector<double> margins;  // the likeliest token's log-probability minus the next one's
};

std::unique_ptr<Engine> device_engine(int32_t sequences, int32_t pages) {
  EngineOptions options;
  options.backend = "cuda";
  options.context = 512;
  options.limits = {.max_tokens = 256, .max_sequences = sequences};
  auto engine = std::make_unique<Engine>(open_builtin_model(), options);
  if (pages == 0) return engine;
  options.kv_memory = static_cast<uint64_t>(pages) * KvCache::page_bytes(engine->cache().config());
  engine.reset();
  return std::make_unique<Engine>(open_builtin_model(), options);
}

std::shared_ptr<Ticket> submit(Engine& engine, Request request, Text& text) {
  request.on_token = [&text](const TokenEvent& event) {
    text.ids.push_back(event.id);
    text.margins.push_back(double{event.logprobs[1].logprob} - event.logprobs[2].logprob);
    return true;
  };
  return engine.scheduler().submit(std::move(request));
}

TEST(RequestsOnADevice, EachOfACrowdFollowsTheSameRequestAloneUpToANearTie) {
  try {
    (void)create_backend("cuda");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  constexpr size_t kRequests = 48;
  // Where a text may part: log-probabilities are those of a cache in 16 bits and activations in 8.
  constexpr double kNearTie = 0.3;
  auto crowd = device_engine(8, 24);
  auto alone = device_engine(1, 0);
  const int32_t vocabulary = crowd->model().config().vocabulary;
  std::mt19937 random(3);
  std::vector<Request> requests;
  std::vector<int32_t> arrivals;
  for (size_t i = 0; i < kRequests; ++i) {
    // Few seeds: some prompts begin like others.
    const auto length = static_cast<int32_t>(1 + random() % 300);
    Request request{.prompt = tokens_of(static_cast<int32_t>(random() % 6), length, vocabulary),
                    .max_new_tokens = static_cast<int32_t>(1 + random() % 60)};
    request.stop_at_end = false;
    request.text = false;
    request.top_logprobs = 2;
    requests.push_back(std::move(request));
    arrivals.push_back(static_cast<int32_t>(random() % 100));
  }
  std::vector<Text> together(kRequests);
  for (int32_t step = 0; step < 100 || crowd->scheduler().stats().running + crowd->scheduler().stats().waiting > 0;
       ++step) {
    ASSERT_LT(step, 100000);
    for (size_t i = 0; i < kRequests; ++i) {
      if (arrivals[i] == step) (void)submit(*crowd, requests[i], together[i]);
    }
    crowd->scheduler().step();
  }
  EXPECT_GT(crowd->scheduler().stats().preemptions, 0) << "the test must run out of pages";
  EXPECT_GT(crowd->scheduler().stats().reused_tokens, 0);
  EXPECT_EQ(crowd->cache().pool().available(), crowd->cache().pool().pages());
  EXPECT_TRUE(crowd->cache().pool().consistent());
  size_t same = 0;
  for (size_t i = 0; i < kRequests; ++i) {
    Text expected;
    alone->cache().pool().clear();
    alone->scheduler().run(*submit(*alone, requests[i], expected));
    ASSERT_EQ(together[i].ids.size(), expected.ids.size()) << i;
    const auto parted = std::ranges::mismatch(expected.ids, together[i].ids).in1 - expected.ids.begin();
    if (parted == std::ssize(expected.ids)) {
      ++same;
    } else {
      EXPECT_LE(expected.margins[static_cast<size_t>(parted)], kNearTie) << "request " << i << ", token " << parted;
    }
  }
  EXPECT_GE(same, kRequests / 3);
}

}  // namespace
}  // namespace inferno::testing
