// Tokens guessed ahead: whatever is guessed, by whom and beside whom, a request has the bits it has without.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "constrained.h"
#include "model_runs.h"
#include "support/allocations.h"
#include "synthetic/synthetic_model.h"

namespace inferno::testing {
namespace {

constexpr int32_t kPage = KvCache::kPageSize;

struct SpeculationSetup {
  std::string backend = "simd";
  int32_t sequences = 4;
  int32_t context = 512;
  int32_t pages = 0;  // 0: for all sequences
  int32_t max_tokens = 0;
  std::string draft = {};
};

// Guesses are made however long the steps of this machine take.
std::unique_ptr<Engine> make_guessing(const SpeculationSetup& setup) {
  EngineOptions options;
  options.backend = setup.backend;
  options.context = setup.context;
  options.limits = {.max_tokens = setup.max_tokens, .max_sequences = setup.sequences};
  options.scheduler.max_token_latency_ms = 1e6;
  options.scheduler.draft_price = 0.05;
  options.draft = setup.draft;
  if (setup.pages > 0) {
    const auto one = make_guessing({.backend = setup.backend, .sequences = 1, .context = setup.context});
    options.kv_memory = static_cast<uint64_t>(setup.pages) * KvCache::page_bytes(one->cache().config());
  }
  return std::make_unique<Engine>(open_model(long_model("q8_0")), options);
}

Request text_of(int32_t seed, int32_t length, int32_t generated, int32_t vocabulary) {
  Request request{.prompt = tokens_of(seed, length, vocabulary), .max_new_tokens = generated};
  request.stop_at_end = false;
  request.text = false;
  request.draft = false;
  return request;
}

// What a caller sees of a request, to the bit.
struct Seen {
  std::vector<std::vector<int32_t>> ids;
  std::vector<StopReason> reasons;
  std::vector<std::vector<int32_t>> called;  // by sample: ids of its callbacks
  std::vector<float> logprobs;               // of sample 0
  friend bool operator==(const Seen&, const Seen&) = default;
};

std::shared_ptr<Ticket> submit_seen(Engine& engine, Request request, Seen& seen, int32_t stop_after = -1) {
  seen.called.resize(static_cast<size_t>(request.samples));
  request.on_token = [&seen, stop_after](const TokenEvent& event) {
    std::vector<int32_t>& called = seen.called[static_cast<size_t>(event.sample)];
    called.push_back(event.id);
    if (event.sample == 0) {
      for (const TokenLogprob& entry : event.logprobs) seen.logprobs.push_back(entry.logprob);
    }
    return static_cast<int32_t>(called.size()) != stop_after;
  };
  request.on_finish = [&seen](const RequestResult& result) {
    for (const Completion& sample : result.samples) {
      seen.ids.push_back(sample.ids);
      seen.reasons.push_back(sample.reason);
    }
  };
  return engine.scheduler().submit(std::move(request));
}

Seen run_alone(Engine& engine, Request request, int32_t stop_after = -1) {
  Seen seen;
  const auto ticket = submit_seen(engine, std::move(request), seen, stop_after);
  engine.scheduler().run(*ticket);
  return seen;
}

// Guesses what is known to come, but every `wrong`-th token as another one; 0: all are right.
void guess_known(Request& request, std::vector<std::vector<int32_t>> known, int32_t wrong, int32_t vocabulary) {
  request.guess = [known = std::move(known), wrong, vocabulary](int32_t sample, std::span<const int32_t> generated,
                                                                std::span<int32_t> out) {
    const std::vector<int32_t>& text = known[static_cast<size_t>(sample)];
    int32_t count = 0;
    for (size_t at = generated.size(); at < text.size() && static_cast<size_t>(count) < out.size(); ++at, ++count) {
      const bool right = wrong == 0 || (static_cast<int32_t>(at) + 1) % wrong != 0;
      out[static_cast<size_t>(count)] = right ? text[at] : (text[at] + 1) % vocabulary;
    }
    return count;
  };
}

void step_all(Engine& engine) {
  while (engine.scheduler().step()) {
  }
}

class Speculation : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, Speculation, ::testing::Values("scalar", "simd", "parallel"),
                         [](const auto& info) { return info.param; });

TEST_P(Speculation, EachOfManyRandomRequestsHasTheBitsItHasWithoutGuesses) {
  const bool scalar = GetParam() == "scalar";
  auto plain = make_guessing({.backend = GetParam(), .sequences = 1});
  // Few pages: some give theirs back and are computed again.
  auto crowd = make_guessing({.backend = GetParam(), .sequences = 6, .pages = 9, .draft = long_model("q4_0")});
  const int32_t vocabulary = crowd->model().config().vocabulary;
  std::mt19937 random(5);
  const int32_t count = scalar ? 10 : 48;
  std::vector<Request> requests;
  std::vector<int32_t> stops;
  std::vector<Seen> expected;
  for (int32_t i = 0; i < count; ++i) {
    const auto length = static_cast<int32_t>(1 + random() % 200);
    Request request =
        text_of(static_cast<int32_t>(random() % 6), length, static_cast<int32_t>(1 + random() % 80), vocabulary);
    request.sampling = {.temperature = static_cast<float>(random() % 3) * 0.5F,
                        .top_k = static_cast<int32_t>(random() % 3) * 20,
                        .top_p = random() % 2 == 0 ? 1.0F : 0.9F,
                        .repeat_penalty = random() % 2 == 0 ? 1.0F : 1.3F,
                        .presence_penalty = random() % 2 == 0 ? 0.0F : 0.4F,
                        .frequency_penalty = random() % 2 == 0 ? 0.0F : 0.3F,
                        .seed = random()};
    if (random() % 3 == 0)
      request.bias = {{.id = static_cast<int32_t>(random() % 100), .bias = 4}, {.id = 7, .bias = -9}};
    request.samples = random() % 5 == 0 ? 3 : 1;
    request.top_logprobs = random() % 2 == 0 ? 2 : -1;
    request.reuse_prefix = random() % 4 != 0;
    stops.push_back(random() % 6 == 0 ? 7 : -1);
    expected.push_back(run_alone(*plain, request, stops.back()));
    switch (random() % 4) {
      case 0:
        request.lookup = true;
        break;
      case 1:
        request.lookup = true;
        request.prediction = expected.back().ids.front();
        break;
      case 2:
        request.draft = true;
        break;
      default:
        guess_known(request, expected.back().ids, static_cast<int32_t>(random() % 12), vocabulary);
    }
    request.max_draft = random() % 2 == 0 ? kMostDraft : static_cast<int32_t>(random() % kMostDraft);
    requests.push_back(std::move(request));
  }
  std::vector<Seen> seen(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    (void)submit_seen(*crowd, requests[i], seen[i], stops[i]);
    for (uint32_t s = random() % 8; s > 0; --s) crowd->scheduler().step();
  }
  step_all(*crowd);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(seen[i], expected[i]) << "request " << i;
  const EngineStats stats = crowd->scheduler().stats();
  EXPECT_GT(stats.accepted_tokens, 10 * count);
  EXPECT_LT(stats.accepted_tokens, stats.drafted_tokens);
  EXPECT_TRUE(scalar || stats.preemptions > 0);
  EXPECT_EQ(crowd->cache().pool().available(), crowd->cache().pool().pages());
  EXPECT_TRUE(crowd->cache().pool().consistent());
}

constexpr const char* kForcedSchema =
    R"({"type":"array","minItems":40,"items":{"type":"object","additionalProperties":false,
        "required":["abcdefghijab","kind"],"properties":{
        "abcdefghijab":{"type":"string","maxLength":12},
        "kind":{"enum":["cdcdcdcdabab","cdcdcdefghij","efefefefefef"]}}}})";

// Texts under a schema have the same bits whether tokens are guessed ahead or not: those that the schema forces, those
// that look-up finds and those of a draft model, which knows nothing of it.
TEST(Speculating, WhatASchemaForcesIsGuessedAndTheTextIsTheSame) {
  auto plain = make_guessing({.sequences = 1});
  auto crowd = make_guessing({.sequences = 5, .pages = 14, .draft = long_model("q4_0")});
  const int32_t vocabulary = crowd->model().config().vocabulary;
  MaskWorker worker;
  worker.start();
  const auto request_of = [&](int32_t seed, const std::shared_ptr<SharedGrammar>& shared, int32_t most_draft) {
    Request request = text_of(seed % 4, 20 + seed, 150, vocabulary);
    request.sampling = {.temperature = static_cast<float>(seed % 3) * 0.7F, .seed = static_cast<uint64_t>(seed)};
    request.samples = seed % 5 == 0 ? 2 : 1;
    request.top_logprobs = seed % 2 == 0 ? 2 : -1;
    request.max_draft = most_draft;
    request.lookup = most_draft > 0 && seed % 3 == 1;
    request.draft = most_draft > 0 && seed % 4 == 3;
    constrain(request, std::make_shared<Masks>(shared, request.samples, 150, worker));
    return request;
  };
  for (const bool single_letters : {false, true}) {
    const auto shared = shared_schema(kForcedSchema, json_tokens(vocabulary, single_letters));
    const int64_t drafted = crowd->scheduler().stats().drafted_tokens;
    const int64_t accepted = crowd->scheduler().stats().accepted_tokens;
    constexpr int32_t kCount = 12;
    std::vector<Seen> expected(kCount);
    std::vector<Seen> seen(kCount);
    for (int32_t i = 0; i < kCount; ++i) {
      expected[static_cast<size_t>(i)] = run_alone(*plain, request_of(i, shared, 0));
      (void)submit_seen(*crowd, request_of(i, shared, kMostDraft), seen[static_cast<size_t>(i)]);
      crowd->scheduler().step();
    }
    step_all(*crowd);
    for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], expected[i]) << "request " << i;
    const int64_t right = crowd->scheduler().stats().accepted_tokens - accepted;
    EXPECT_GT(right, kCount * 10);
    EXPECT_LE(right, crowd->scheduler().stats().drafted_tokens - drafted);
  }
  EXPECT_EQ(plain->scheduler().stats().drafted_tokens, 0);
  EXPECT_EQ(crowd->cache().pool().available(), crowd->cache().pool().pages());
}

TEST(Speculating, TokensThatASchemaForcesTakeFewForwards) {
  auto engine = make_guessing({});
  const int32_t vocabulary = engine->model().config().vocabulary;
  MaskWorker worker;
  worker.start();
  const auto shared =
      shared_schema(R"({"const":"abcdefghijabcdefghijabcdefghijabcdefghijabcdefghij"})", json_tokens(vocabulary));
  Request request = text_of(3, 40, 60, vocabulary);
  request.stop_ids = {vocabulary - 1};
  constrain(request, std::make_shared<Masks>(shared, 1, 60, worker));
  const RequestResult made = generate(*engine, request);
  EXPECT_EQ(made.ids().size(), 27U) << "25 pairs of letters in quotes";
  EXPECT_EQ(made.reason(), StopReason::stop_token);
  EXPECT_GE(made.metrics.accepted_tokens, 20);
  EXPECT_LE(made.metrics.forwards, 9);
}

TEST(Speculating, AStepWithForcedTokensAllocatesNothing) {
  auto engine = make_guessing({});
  const int32_t vocabulary = engine->model().config().vocabulary;
  MaskWorker worker;
  worker.start();
  const auto shared = shared_schema(kForcedSchema, json_tokens(vocabulary, true));
  for (int32_t i = 0; i < 3; ++i) {
    Request request = text_of(i, 30, 300, vocabulary);
    request.sampling = {.temperature = 1, .seed = static_cast<uint64_t>(i)};
    constrain(request, std::make_shared<Masks>(shared, 1, 300, worker));
    (void)engine->scheduler().submit(std::move(request));
  }
  const auto made = [&] { return engine->scheduler().stats().generated_tokens; };
  while (made() < 150) engine->scheduler().step();
  const int64_t drafted = engine->scheduler().stats().drafted_tokens;
  const int64_t before = allocations_here();
  while (made() < 500) engine->scheduler().step();
  EXPECT_EQ(allocations_here(), before);
  EXPECT_GT(engine->scheduler().stats().drafted_tokens, drafted);
  step_all(*engine);
}

TEST(Speculating, RightGuessesBecomeManyTokensOfOneForward) {
  auto engine = make_guessing({});
  const int32_t vocabulary = engine->model().config().vocabulary;
  Request request = text_of(3, 40, 161, vocabulary);
  const RequestResult plain = generate(*engine, request);
  guess_known(request, {plain.ids()}, 0, vocabulary);
  request.max_draft = 7;
  const RequestResult made = generate(*engine, request);
  EXPECT_EQ(made.ids(), plain.ids());
  EXPECT_EQ(made.metrics.drafted_tokens, made.metrics.accepted_tokens);
  EXPECT_EQ(made.metrics.forwards + made.metrics.accepted_tokens, 161);
  EXPECT_LE(made.metrics.forwards, 28) << "one, a few short ones, then eight tokens each";
}

TEST(Speculating, WrongGuessesAreFewAndNoneOfThemIsFoundInTheCache) {
  auto engine = make_guessing({.context = 1024});
  auto fresh = make_guessing({.context = 1024});
  const int32_t vocabulary = engine->model().config().vocabulary;
  Request request = text_of(3, kPage - 6, 300, vocabulary);
  const std::vector<int32_t> text = generate(*fresh, request).ids();
  guess_known(request, {text}, 1, vocabulary);
  const RequestResult made = generate(*engine, request);
  EXPECT_EQ(made.ids(), text);
  EXPECT_GT(made.metrics.drafted_tokens, 0);
  EXPECT_EQ(made.metrics.accepted_tokens, 0);
  EXPECT_LE(made.metrics.drafted_tokens * 0.05, 0.03 * 300) << "their price is less than three percent";
  // What goes on differently after every page: computed anew, and right.
  for (int32_t cut = kPage; cut < 300; cut += kPage) {
    Request next = text_of(3, kPage - 6, 20, vocabulary);
    next.prompt.insert(next.prompt.end(), text.begin(), text.begin() + cut + 3);
    next.prompt.push_back((text[static_cast<size_t>(cut) + 3] + 1) % vocabulary);
    EXPECT_EQ(run_alone(*engine, next), run_alone(*fresh, next)) << cut;
  }
}

TEST(Speculating, AnEndAmongAcceptedGuessesEndsThereAsWithoutThem) {
  auto engine = make_guessing({});
  const int32_t vocabulary = engine->model().config().vocabulary;
  const Request base = text_of(9, 30, 100, vocabulary);
  const std::vector<int32_t> text = generate(*engine, base).ids();
  for (int32_t end = 20; end < 60; ++end) {
    std::vector<Request> kinds;
    kinds.push_back(base);
    kinds.back().max_new_tokens = end;
    kinds.push_back(base);
    kinds.back().stop_ids = {text[static_cast<size_t>(end)]};
    for (Request& request : kinds) {
      const Seen expected = run_alone(*engine, request);
      guess_known(request, {text}, 0, vocabulary);
      EXPECT_EQ(run_alone(*engine, request), expected) << end;
    }
    Request stopped = base;  // by its callback
    const Seen expected = run_alone(*engine, stopped, end);
    guess_known(stopped, {text}, 0, vocabulary);
    EXPECT_EQ(run_alone(*engine, stopped, end), expected) << end;
  }
}

TEST(Speculating, ACancelAmongAcceptedGuessesIsSeenBeforeTheNextToken) {
  auto engine = make_guessing({});
  const int32_t vocabulary = engine->model().config().vocabulary;
  Request request = text_of(9, 30, 100, vocabulary);
  const std::vector<int32_t> text = generate(*engine, request).ids();
  guess_known(request, {text}, 0, vocabulary);
  for (const bool all : {false, true}) {
    int32_t tokens = 0;
    std::shared_ptr<Ticket> ticket;
    Request cancelled = request;
    cancelled.on_token = [&](const TokenEvent&) {
      if (++tokens == 45) all ? engine->scheduler().cancel_all() : ticket->cancel();
      return true;
    };
    ticket = engine->scheduler().submit(std::move(cancelled));
    engine->scheduler().run(*ticket);
    EXPECT_EQ(tokens, 45);
    EXPECT_EQ(ticket->result().ids(), std::vector<int32_t>(text.begin(), text.begin() + 45));
    EXPECT_EQ(ticket->result().reason(), StopReason::cancelled);
    EXPECT_EQ(engine->cache().pool().available(), engine->cache().pool().pages());
    EXPECT_EQ(generate(*engine, request).ids(), text) << "with what it left in the cache";
  }
}

TEST(Speculating, AContextThatIsFullEndsATextAtTheSameToken) {
  auto engine = make_guessing({.context = 130});
  const int32_t vocabulary = engine->model().config().vocabulary;
  Request request = text_of(9, 30, -1, vocabulary);
  const Seen expected = run_alone(*engine, request);
  EXPECT_EQ(expected.reasons.front(), StopReason::context_full);
  guess_known(request, expected.ids, 0, vocabulary);
  EXPECT_EQ(run_alone(*engine, request), expected);
}

TEST(Speculating, ARequestWithAMaskIsNotGuessedAndHasItsBits) {
  auto engine = make_guessing({});
  const int32_t vocabulary = engine->model().config().vocabulary;
  std::vector<uint32_t> even(static_cast<size_t>(bitset_words(vocabulary)), 0x55555555);
  Request request = text_of(2, 30, 60, vocabulary);
  request.allowed = [&](int32_t, std::span<const int32_t>) { return std::span<const uint32_t>(even); };
  const RequestResult plain = generate(*engine, request);
  request.lookup = true;
  const RequestResult made = generate(*engine, request);
  EXPECT_EQ(made.ids(), plain.ids());
  EXPECT_EQ(made.metrics.drafted_tokens, 0);
}

TEST(Speculating, ATextThatRepeatsIsFoundByLookUp) {
  auto engine = make_guessing({});
  const int32_t vocabulary = engine->model().config().vocabulary;
  Request request = text_of(2, 30, 150, vocabulary);
  request.bias = {{.id = 11, .bias = 100}};
  request.lookup = true;
  const RequestResult made = generate(*engine, request);
  EXPECT_EQ(made.ids(), std::vector<int32_t>(150, 11));
  EXPECT_GT(made.metrics.accepted_tokens, 110);
}

TEST(Speculating, AStepWithGuessesAllocatesNothing) {
  auto engine = make_guessing({.sequences = 4, .draft = long_model("q4_0")});
  const int32_t vocabulary = engine->model().config().vocabulary;
  int32_t tokens = 0;
  for (int32_t i = 0; i < 4; ++i) {
    Request request = text_of(i, 30 + i, 300, vocabulary);
    request.lookup = i % 2 == 0;
    request.draft = true;
    request.sampling = {.temperature = 0.3F, .repeat_penalty = 1.1F};
    request.on_token = [&](const TokenEvent&) { return ++tokens > 0; };
    (void)engine->scheduler().submit(std::move(request));
  }
  while (tokens < 80) engine->scheduler().step();
  const int64_t before = allocations();
  const int64_t drafted = engine->scheduler().stats().drafted_tokens;
  for (int32_t i = 0; i < 30; ++i) engine->scheduler().step();
  EXPECT_EQ(allocations(), before);
  EXPECT_GT(engine->scheduler().stats().drafted_tokens, drafted);
  step_all(*engine);
}

TEST(Speculating, GuessesStayWithinTheSizesOfAStep) {
  auto engine = make_guessing({.sequences = 8, .max_tokens = 12});
  const int32_t vocabulary = engine->model().config().vocabulary;
  const auto expected = make_guessing({.sequences = 1});
  std::vector<Seen> seen(8);
  for (int32_t i = 0; i < 8; ++i) {
    Request request = text_of(i, 20, 60, vocabulary);
    guess_known(request, {generate(*expected, request).ids()}, 9, vocabulary);
    (void)submit_seen(*engine, std::move(request), seen[static_cast<size_t>(i)]);
  }
  step_all(*engine);
  for (const StepRecord& step : engine->scheduler().log().last(256)) {
    EXPECT_LE(step.decodes + step.prompt_tokens, 12);
  }
  for (int32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(seen[static_cast<size_t>(i)].ids.front(), generate(*expected, text_of(i, 20, 60, vocabulary)).ids());
  }
  EXPECT_GT(engine->scheduler().stats().accepted_tokens, 0);
}

TEST(Speculating, AStepThatIsExpectedToTakeTooLongHasNoGuesses) {
  EngineOptions options;
  options.backend = "simd";
  options.context = 512;
  options.scheduler.max_token_latency_ms = 1e-6;
  options.scheduler.draft_price = 0.05;
  Engine engine(open_model(long_model("q8_0")), options);
  const int32_t vocabulary = engine.model().config().vocabulary;
  Request request = text_of(3, 40, 60, vocabulary);
  const RequestResult plain = generate(engine, request);
  guess_known(request, {plain.ids()}, 0, vocabulary);
  const RequestResult made = generate(engine, request);
  EXPECT_EQ(made.metrics.drafted_tokens, 0);
  EXPECT_EQ(made.ids(), plain.ids());
}

TEST(Speculating, WhatAGuessThrowsEndsItsRequestAlone) {
  auto engine = make_guessing({});
  const int32_t vocabulary = engine->model().config().vocabulary;
  Request other = text_of(4, 20, 30, vocabulary);
  const std::vector<int32_t> expected = generate(*engine, other).ids();
  const auto goes_on = engine->scheduler().submit(other);
  Request request = text_of(3, 40, 60, vocabulary);
  request.guess = [](int32_t, std::span<const int32_t> generated, std::span<int32_t>) -> int32_t {
    if (generated.size() > 9) throw std::runtime_error("no idea");
    return 0;
  };
  const auto ends = engine->scheduler().submit(std::move(request));
  step_all(*engine);
  EXPECT_TRUE(ends->result().error);
  EXPECT_EQ(goes_on->result().ids(), expected);
}

TEST(DraftModels, TheSameModelGuessesEveryTokenGreedyAndDrawn) {
  auto engine = make_guessing({.draft = long_model("q8_0")});
  const int32_t vocabulary = engine->model().config().vocabulary;
  for (const float temperature : {0.0F, 0.9F}) {
    Request request = text_of(3, 150, 120, vocabulary);
    request.sampling = {.temperature = temperature, .repeat_penalty = 1.2F, .seed = 7};
    const RequestResult plain = generate(*engine, request);
    EXPECT_EQ(plain.metrics.drafted_tokens, 0);
    request.draft = true;
    for (int32_t again = 0; again < 2; ++again) {  // the second finds pages of the first
      const RequestResult made = generate(*engine, request);
      EXPECT_EQ(made.ids(), plain.ids());
      EXPECT_EQ(made.metrics.accepted_tokens, made.metrics.drafted_tokens);
      EXPECT_GT(made.metrics.accepted_tokens, 80);
    }
  }
}

TEST(DraftModels, AnotherModelGuessesSomeTokensOfSeveralTextsAndTheyHaveTheirBits) {
  auto plain = make_guessing({.sequences = 1});
  auto engine = make_guessing({.sequences = 4, .draft = long_model("q4_0")});
  const int32_t vocabulary = engine->model().config().vocabulary;
  std::vector<Seen> seen(6);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) {
    Request request = text_of(i, 20 + 50 * i, 90, vocabulary);
    request.sampling = {.temperature = static_cast<float>(i % 2) * 0.5F, .seed = 3};
    requests.push_back(request);
    request.draft = true;
    (void)submit_seen(*engine, std::move(request), seen[static_cast<size_t>(i)]);
  }
  step_all(*engine);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(seen[i], run_alone(*plain, requests[i])) << i;
  const EngineStats stats = engine->scheduler().stats();
  EXPECT_GT(stats.accepted_tokens, 0);
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DraftModels, OneOfAnotherVocabularyIsRefused) {
  const std::string why = refusal([] { (void)make_guessing({.draft = ""})->model(); });
  EXPECT_EQ(why, "");
  EXPECT_NE(refusal([] {
              EngineOptions options;
              options.backend = "simd";
              options.draft = long_model("q8_0");
              const Engine engine(open_builtin_model(), options);
            }).find("same vocabulary"),
            std::string::npos);
}

TEST(Speculating, AModelWithStatesRefusesItInOneLine) {
  const SyntheticModel file(find_model_shape("tiny-qwen3.5"), "f32");
  EngineOptions options;
  options.backend = "simd";
  options.context = 128;
  Engine engine(file, options);
  Request request{.prompt = {1, 2, 3}, .max_new_tokens = 4};
  request.text = false;
  EXPECT_EQ(generate(engine, request).metrics.drafted_tokens, 0);
  request.lookup = true;
  const std::string why = refusal([&] { (void)generate(engine, request); });
  EXPECT_NE(why.find("recurrent layers"), std::string::npos) << why;
  options.draft = long_model("q8_0");
  EXPECT_NE(refusal([&] { const Engine other(file, options); }).find("recurrent layers"), std::string::npos);
}

TEST(Speculating, WhatCannotBeGuessedFromIsAnError) {
  auto engine = make_guessing({});
  Request request = text_of(1, 5, 5, engine->model().config().vocabulary);
  request.prediction = {-1};
  EXPECT_NE(refusal([&] { (void)generate(*engine, request); }).find("prediction"), std::string::npos);
  request.prediction = {};
  request.max_draft = 16;
  EXPECT_NE(refusal([&] { (void)generate(*engine, request); }).find("`max_draft`"), std::string::npos);
}

}  // namespace
}  // namespace inferno::testing
