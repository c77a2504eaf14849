// Prompts whose pages are kept in a folder: after a restart they are not computed again, and answers are the same.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/content_hash.h"
#include "engine/builtin_model.h"
#include "inferno/error.h"
#include "serve/client.h"

namespace inferno::testing {
namespace {

namespace fs = std::filesystem;

class ServeKeptPages : public ::testing::Test {
 protected:
  ~ServeKeptPages() override { fs::remove_all(folder_); }

  [[nodiscard]] std::unique_ptr<Engine> engine(const std::function<void(EngineOptions&)>& change = {}) const {
    EngineOptions options;
    options.limits.max_sequences = 2;
    options.context = 512;
    options.page_folder = folder_.string();
    options.page_folder_bytes = uint64_t{1} << 30;
    if (change) change(options);
    return std::make_unique<Engine>(open_model(""), options);
  }
  // The answer of a server that lives for it alone.
  [[nodiscard]] Json ask(const std::vector<std::string>& keys = {}, const std::string& key = {},
                         const std::function<void(EngineOptions&)>& change = {}) const {
    const std::unique_ptr<Engine> own = engine(change);
    serve::ServerOptions options;
    options.port = 0;
    options.keys = keys;
    serve::Server server(*own, options);
    std::thread thread([&] { server.run(); });
    const Json body = {{"prompt", prompt_}, {"max_tokens", 20}, {"seed", 5}, {"logprobs", 3}, {"ignore_eos", true}};
    const Json answer = Client(server.port())
                            .post(kText, body.dump(), key.empty() ? "" : "Authorization: Bearer " + key + "\r\n")
                            .json();
    server.stop();
    thread.join();
    return answer;
  }
  static int64_t reused(const Json& answer) { return answer["usage"]["prompt_tokens_details"]["cached_tokens"]; }

  fs::path folder_ = fs::temp_directory_path() / ("inferno_kept_pages_" + std::to_string(::getpid()));
  std::string prompt_ = [] {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "The sea was calm and the ship went on. ";
    return text;
  }();
};

TEST_F(ServeKeptPages, AnAnswerAfterARestartIsTheSameWithoutComputingItsPromptAgain) {
  const Json first = ask();
  EXPECT_EQ(reused(first), 0);
  const Json second = ask();
  const int64_t tokens = first["usage"]["prompt_tokens"];
  ASSERT_GT(tokens, 200);
  EXPECT_EQ(reused(second), (tokens - 1) / 64 * 64);
  EXPECT_EQ(second["choices"], first["choices"]);
}

TEST_F(ServeKeptPages, PagesOfOneKeyAreNoOthersWhereverItStandsInTheFile) {
  const Json first = ask({"alice", "bob"}, "alice");
  EXPECT_EQ(reused(ask({"bob", "carol"}, "bob")), 0);
  const Json again = ask({"carol", "alice"}, "alice");
  EXPECT_GT(reused(again), 0);
  EXPECT_EQ(again["choices"], first["choices"]);
}

TEST_F(ServeKeptPages, OtherSettingsDoNotSeeThem) {
  (void)ask();
  EXPECT_EQ(reused(ask({}, {}, [](EngineOptions& options) { options.context = 448; })), 0);
  EXPECT_EQ(reused(ask({}, {}, [](EngineOptions& options) { options.kv_dtype = DType::f32; })), 0);
  EXPECT_GT(reused(ask()), 0);
}

TEST_F(ServeKeptPages, ADamagedFileIsComputedAgain) {
  const Json first = ask();
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    if (entry.is_regular_file()) fs::resize_file(entry.path(), entry.file_size() - 1);
  }
  const Json again = ask();
  EXPECT_EQ(reused(again), 0);
  EXPECT_EQ(again["choices"], first["choices"]);
  EXPECT_GT(reused(ask()), 0) << "the damaged files were written again";
}

TEST_F(ServeKeptPages, PagesAreWrittenWhileNobodyAsks) {
  const std::unique_ptr<Engine> own = engine();
  Request request{.prompt = std::vector<int32_t>(200, 7)};
  request.max_new_tokens = 1;
  const auto ticket = own->driver().submit(request);
  ticket->wait();
  const auto count = [&] {
    size_t files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      files += entry.path().extension() == ".page" ? 1 : 0;
    }
    return files;
  };
  for (int i = 0; i < 1000 && count() < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(count(), 3U);
}

TEST(ContentHashTest, EveryBitAndTheLengthCount) {
  std::vector<std::byte> bytes(100);
  const auto hash = [&] {
    ContentHash made;
    made.add(std::span<const std::byte>(bytes));
    return made.value();
  };
  const Fingerprint zero = hash();
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    bytes[i / 8] ^= static_cast<std::byte>(1 << (i % 8));
    EXPECT_NE(hash(), zero) << i;
    bytes[i / 8] ^= static_cast<std::byte>(1 << (i % 8));
  }
  ContentHash parts;
  for (size_t at = 0; at < bytes.size(); at += 7) {
    parts.add(std::span<const std::byte>(bytes).subspan(at, std::min<size_t>(7, bytes.size() - at)));
  }
  EXPECT_EQ(parts.value(), zero);
  bytes.push_back({});
  EXPECT_NE(hash(), zero);
}

}  // namespace
}  // namespace inferno::testing
