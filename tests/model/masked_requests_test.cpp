// Requests that may not draw every token: masks that come late or from the worker, and what they cost the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "constrained.h"
#include "crowd_engine.h"
#include "support/allocations.h"

namespace inferno::testing {
namespace {

TEST(MaskedRequests, AMaskAndABiasDecideWhatIsDrawn) {
  auto engine = make({});
  const int32_t vocabulary = engine->model().config().vocabulary;
  Request request = request_of(3, 20, 6, vocabulary);
  std::vector<uint32_t> only(static_cast<size_t>(vocabulary + 31) / 32, 0);
  request.allowed = [&](int32_t, std::span<const int32_t> generated) {
    std::ranges::fill(only, 0);
    const size_t next = 7 + generated.size();
    only[next / 32] = 1U << (next % 32);
    return std::span<const uint32_t>(only);
  };
  EXPECT_EQ(generate(*engine, request).samples.front().ids, (std::vector<int32_t>{7, 8, 9, 10, 11, 12}));
  Request biased = request_of(3, 20, 3, vocabulary);
  biased.bias = {{.id = 5, .bias = 1e6F}};
  EXPECT_EQ(generate(*engine, biased).samples.front().ids, (std::vector<int32_t>{5, 5, 5}));
}

TEST(MaskedRequests, ADecodeStepWithAGrammarAllocatesNothingOnItsThread) {
  auto engine = make({.sequences = 4});
  const int32_t vocabulary = engine->model().config().vocabulary;
  const grammar::Limits limits;
  const grammar::Source source{.kind = grammar::SourceKind::json_schema,
                               .text = R"({"type":"array","items":{"type":"string","maxLength":24},"minItems":500})",
                               .choices = {}};
  MaskWorker worker;
  worker.start();
  const auto shared =
      std::make_shared<SharedGrammar>(grammar::parse_source(source, limits), json_tokens(vocabulary), limits);
  int32_t tokens = 0;
  for (int32_t i = 0; i < 4; ++i) {
    Request request = request_of(i, 30 + i, 300, vocabulary);
    request.sampling = {.temperature = 1};
    constrain(request, std::make_shared<Masks>(shared, 1, 300, worker));
    request.on_token = [&](const TokenEvent&) { return ++tokens > 0; };
    (void)engine->scheduler().submit(std::move(request));
  }
  while (tokens < 80) engine->scheduler().step();
  const int64_t before = allocations_here();
  const int32_t begin = tokens;
  for (int32_t i = 0; i < 200; ++i) engine->scheduler().step();
  EXPECT_EQ(allocations_here(), before);  // the worker may
  EXPECT_GT(tokens - begin, 200);         // of 800: rows whose masks are late sit out
  run_all(*engine);
}

TEST(MaskedRequests, ARowWhoseMaskIsLateSitsOutAndTheOthersGoOn) {
  const auto run = [](int32_t late) {
    auto engine = make({.sequences = 2});
    const int32_t vocabulary = engine->model().config().vocabulary;
    const std::vector<uint32_t> all(static_cast<size_t>(bitset_words(vocabulary)), UINT32_MAX);
    std::vector<Outcome> outcomes(2);
    Request masked = request_of(1, 40, 12, vocabulary);
    int32_t asked = 0;
    masked.mask_ready = [&](int32_t, std::span<const int32_t>, int32_t) { return ++asked % (late + 1) == 0; };
    masked.allowed = [&](int32_t, std::span<const int32_t>) { return std::span<const uint32_t>(all); };
    const auto first = submit_watched(*engine, std::move(masked), outcomes[0]);
    const auto other = submit_watched(*engine, request_of(2, 40, 30, vocabulary), outcomes[1]);
    while (!other->is_done()) engine->scheduler().step();
    EXPECT_EQ(first->is_done(), late == 0);
    run_all(*engine);
    EXPECT_EQ(outcomes[0].ids.front().size(), 12U);
    return outcomes;
  };
  EXPECT_EQ(run(0), run(3));
}

TEST(MaskedRequests, ARowThatSitsOutIsNoPartOfWhatItsStepIsExpectedToTake) {
  auto engine = make({.sequences = 2});
  const int32_t vocabulary = engine->model().config().vocabulary;
  const std::vector<uint32_t> all(static_cast<size_t>(bitset_words(vocabulary)), UINT32_MAX);
  bool late = false;
  Request masked = request_of(1, 40, 30, vocabulary);
  masked.mask_ready = [&](int32_t, std::span<const int32_t>, int32_t) { return !late; };
  masked.allowed = [&](int32_t, std::span<const int32_t>) { return std::span<const uint32_t>(all); };
  int32_t tokens = 0;
  masked.on_token = [&](const TokenEvent&) { return ++tokens > 0; };
  (void)engine->scheduler().submit(std::move(masked));
  (void)engine->scheduler().submit(request_of(2, 50, 30, vocabulary));
  while (engine->scheduler().stats().generated_tokens < 8) engine->scheduler().step();
  for (int32_t i = 0; i < 4; ++i) {
    late = i % 2 == 0;
    const StepCost before = engine->scheduler().cost();
    const int32_t had = tokens;
    engine->scheduler().step();
    const StepRecord record = engine->scheduler().log().last(1).front();
    StepShape shape;
    for (int32_t m = 0; m < record.members; ++m) {
      shape = shape.with(record.member[static_cast<size_t>(m)].position, 1, 1);
    }
    EXPECT_EQ(record.sequences, late ? 1 : 2);
    EXPECT_EQ(tokens - had, late ? 0 : 1);
    EXPECT_DOUBLE_EQ(record.expected_seconds, before.seconds(shape));
  }
  late = false;
  run_all(*engine);
}

TEST(MaskedRequests, AMaskThatTakesLongComesFromTheWorker) {
  // Eight thousand counted strings of their own: more than is done while a step waits.
  std::string schema = R"({"type":"array","items":{"anyOf":[)";
  for (int i = 1; i <= 120; ++i) {
    schema +=
        std::string(i > 1 ? "," : "") + R"({"type":"string","pattern":"^[a-z]{)" + std::to_string(i) + "}x[a-z]*$\"}";
  }
  schema += R"(]},"minItems":3})";
  const grammar::Limits limits;
  const auto trie = json_tokens(20'000);
  MaskWorker worker;
  worker.start();
  const auto shared = std::make_shared<SharedGrammar>(
      grammar::parse_source({.kind = grammar::SourceKind::json_schema, .text = schema, .choices = {}}, limits), trie,
      limits);
  const auto masks = std::make_shared<Masks>(shared, 1, 100, worker);
  grammar::Grammar alone(
      grammar::parse_source({.kind = grammar::SourceKind::json_schema, .text = schema, .choices = {}}, limits), trie,
      limits);
  grammar::Matcher matcher(alone);
  std::vector<int32_t> text;
  int32_t late = 0;
  for (const int32_t token : {0, 2, 35, 61, 87, 113}) {  // [ " and pairs of letters
    while (!masks->ready(0, text)) {
      ++late;
      std::this_thread::yield();
    }
    ASSERT_TRUE(std::ranges::equal(masks->mask(0, text), matcher.mask()));
    ASSERT_TRUE(matcher.accept(token));
    text.push_back(token);
  }
  EXPECT_GT(late, 0);
  // What does not fit is the request's error, on the thread that asks.
  text.push_back(1);
  EXPECT_THROW((void)masks->mask(0, text), Error);
}

}  // namespace
}  // namespace inferno::testing
