// A conversation's next turn computes only what is new.
#include <gtest/gtest.h>

#include <limits>

#include "engine/prompt.h"
#include "model_runs.h"

namespace inferno::testing {
namespace {

TEST(ChatReuse, TheSecondTurnOfALongConversationReusesAllFullPages) {
  EngineOptions options;
  options.backend = "simd";
  options.context = 2048;
  options.limits = {.max_sequences = 1};
  Engine engine(open_model(long_model("q8_0")), options);
  const Tokenizer& tokenizer = *engine.tokenizer();

  std::string question;
  while (question.size() < 2200) question += "tell me of the sea and the boats, ";
  std::vector<ChatMessage> messages = {{"user", question}};
  const ChatOptions chat{.chat_template = "chatml"};
  Request request{.prompt = encode_chat(tokenizer, messages, chat), .max_new_tokens = 300};
  request.stop_at_end = false;
  request.sampling = {.temperature = 2, .seed = 3};
  // Letters and spaces only: half a character would not come back from its text.
  for (int32_t id = 0; id < engine.model().config().vocabulary; ++id) {
    const std::string_view piece = tokenizer.piece(id);
    const bool letters = tokenizer.type(id) == TokenType::normal && !piece.empty() &&
                         std::ranges::all_of(piece, [](char c) { return c == ' ' || (c >= 'a' && c <= 'z'); });
    if (!letters) request.bias.push_back({id, -std::numeric_limits<float>::infinity()});
  }
  std::vector<int32_t> before = request.prompt;
  const RequestResult first = generate(engine, request);
  before.insert(before.end(), first.ids().begin(), first.ids().end());
  ASSERT_GT(before.size(), 1500U);

  messages.push_back({"assistant", first.text()});
  messages.push_back({"user", "and then?"});
  const std::vector<int32_t> encoded = encode_chat(tokenizer, messages, chat);
  request.prompt = keep_ids(tokenizer, before, encoded);
  ASSERT_NE(request.prompt, encoded) << "the answer is split as an encoder would: nothing is tested";
  EXPECT_EQ(tokenizer.decode(request.prompt), tokenizer.decode(encoded));
  const RequestResult second = generate(engine, request);
  constexpr auto kPage = static_cast<size_t>(KvCache::kPageSize);
  EXPECT_GE(static_cast<size_t>(second.metrics.reused_tokens), before.size() / kPage * kPage);
}

}  // namespace
}  // namespace inferno::testing
