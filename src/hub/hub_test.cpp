#include "hub/hub.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "base/error.h"
#include "hub/sha256.h"
#include "hub/stand_in.h"

namespace inferno::hub {
namespace {

std::string sha256_of(const std::string& text) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.finish();
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A repository o/n on a stand-in, a cache in a folder of the test's own, and what must hold between them.
class Hub : public ::testing::Test {
 protected:
  Hub() : server_([this](const StandInRequest& request) { return answer(request); }) {
    std::filesystem::remove_all(folder_);
    options_ = {.endpoint = server_.address(), .token = "secret", .retries = 2, .pause_ms = 0};
  }
  ~Hub() override { std::filesystem::remove_all(folder_); }

  StandInReply answer(const StandInRequest& request) {
    if (request.path == "/api/models/o/n?blobs=true") return {.body = info()};
    for (const auto& [name, content] : files_) {
      if (request.path == "/o/n/resolve/main/" + name)
        return on_file_ ? on_file_(request) : reply_with(request, content);
    }
    return {.status = 404};
  }

  std::string info() const {
    if (!info_.empty()) return info_;
    std::string list;
    for (const auto& [name, content] : files_) {
      list += fmt::format(R"({}{{"rfilename":"{}","lfs":{{"sha256":"{}","size":{}}}}})", list.empty() ? "" : ",", name,
                          claimed_hash_.empty() ? sha256_of(content) : claimed_hash_, content.size());
    }
    return fmt::format(R"({{"siblings":[{{"rfilename":"README.md"}},{}]}})", list);
  }

  std::string pull(const std::string& selector = "") {
    return get_model({"o", "n", selector}, ModelCache(folder_), options_, true);
  }
  // Requests for files, without those about the model.
  std::vector<StandInRequest> file_requests() const {
    std::vector<StandInRequest> result;
    for (const StandInRequest& request : server_.requests()) {
      if (request.path.find("/resolve/") != std::string::npos) result.push_back(request);
    }
    return result;
  }
  size_t files_in_cache() const {
    size_t count = 0;
    if (!std::filesystem::exists(folder_)) return 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      count += entry.is_regular_file() ? 1 : 0;
    }
    return count;
  }

  std::map<std::string, std::string> files_ = {{"m-Q8_0.gguf", std::string(300'000, 'x') + "end"}};
  std::string info_;
  std::string claimed_hash_;
  std::function<StandInReply(const StandInRequest&)> on_file_;
  HubOptions options_;
  const std::string folder_ =
      ::testing::TempDir() + "inferno_hub_" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  StandIn server_;  // last: it calls answer()
};

TEST_F(Hub, AFileIsPulledOnceAndFoundThen) {
  const std::string path = pull();
  EXPECT_EQ(path, folder_ + "/o/n/m-Q8_0.gguf");
  EXPECT_EQ(read(path), files_["m-Q8_0.gguf"]);
  EXPECT_EQ(pull("Q8_0"), path);
  EXPECT_EQ(file_requests().size(), 1U);
  const size_t before = server_.requests().size();
  EXPECT_EQ(get_model({"o", "n", ""}, ModelCache(folder_), options_, false), path);
  EXPECT_EQ(server_.requests().size(), before);
}

TEST_F(Hub, ANewVersionReplacesTheOld) {
  (void)pull();
  files_["m-Q8_0.gguf"] = "another";
  EXPECT_EQ(read(pull()), "another");
}

TEST_F(Hub, ProgressGoesToTheEnd) {
  uint64_t last = 0;
  uint64_t total = 0;
  (void)get_model({"o", "n", ""}, ModelCache(folder_), options_, true, [&](const HubFile& file) {
    EXPECT_EQ(file.path, "m-Q8_0.gguf");
    return [&](uint64_t done, uint64_t all) { last = done, total = all; };
  });
  EXPECT_EQ(last, files_["m-Q8_0.gguf"].size());
  EXPECT_EQ(total, last);
}

TEST_F(Hub, AWrongHashLeavesNothing) {
  claimed_hash_ = std::string(64, 'a');
  EXPECT_NE(error_of([&] { (void)pull(); }).find("SHA-256"), std::string::npos);
  EXPECT_EQ(files_in_cache(), 0U);
}

TEST_F(Hub, ACutConnectionIsContinuedWhereItBroke) {
  std::atomic<int> calls = 0;
  on_file_ = [&](const StandInRequest& request) {
    StandInReply reply = reply_with(request, files_["m-Q8_0.gguf"]);
    if (calls++ == 0) reply.cut_at = 100'000;
    return reply;
  };
  EXPECT_EQ(read(pull()), files_["m-Q8_0.gguf"]);
  ASSERT_EQ(file_requests().size(), 2U);
  EXPECT_EQ(file_requests()[1].first_byte, 100'000U);
}

TEST_F(Hub, TheNextPullContinuesABrokenOne) {
  std::atomic<bool> broken = true;
  on_file_ = [&](const StandInRequest& request) {
    StandInReply reply = reply_with(request, files_["m-Q8_0.gguf"]);
    if (broken) reply.cut_at = 1'000;
    return reply;
  };
  EXPECT_NE(error_of([&] { (void)pull(); }).find("continues there"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/o/n/m-Q8_0.gguf"));
  broken = false;
  EXPECT_EQ(read(pull()), files_["m-Q8_0.gguf"]);
  EXPECT_EQ(file_requests().back().first_byte, 3'000U);
  EXPECT_EQ(files_in_cache(), 2U);  // the file and its hash
}

TEST_F(Hub, AServerWithoutRangesSendsItAllAgain) {
  std::atomic<int> calls = 0;
  on_file_ = [&](const StandInRequest& /*request*/) {
    StandInReply reply{.body = files_["m-Q8_0.gguf"]};
    if (calls++ == 0) reply.cut_at = 5'000;
    return reply;
  };
  EXPECT_EQ(read(pull()), files_["m-Q8_0.gguf"]);
}

TEST_F(Hub, MoreThanTheSizeIsRefused) {
  on_file_ = [&](const StandInRequest& /*request*/) { return StandInReply{.body = files_["m-Q8_0.gguf"] + "more"}; };
  EXPECT_NE(error_of([&] { (void)pull(); }).find("more than"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/o/n/m-Q8_0.gguf"));
}

TEST_F(Hub, TheTokenGoesToTheHubAndNowhereElse) {
  StandIn other([&](const StandInRequest& request) { return reply_with(request, files_["m-Q8_0.gguf"]); });
  on_file_ = [&](const StandInRequest& request) -> StandInReply {
    if (request.path.find("resolve") == std::string::npos) return {.status = 404};
    return {.status = 302, .headers = fmt::format("Location: {}/store\r\n", other.address())};
  };
  (void)pull();
  for (const StandInRequest& request : server_.requests()) EXPECT_EQ(request.authorization, "Bearer secret");
  ASSERT_EQ(other.requests().size(), 1U);
  EXPECT_EQ(other.requests()[0].path, "/store");
  EXPECT_EQ(other.requests()[0].authorization, "");
}

TEST_F(Hub, RedirectsThatDoNotEndAreAnError) {
  on_file_ = [&](const StandInRequest& request) {
    return StandInReply{.status = 302, .headers = fmt::format("Location: {}\r\n", request.path)};
  };
  EXPECT_NE(error_of([&] { (void)pull(); }).find("do not end"), std::string::npos);
  EXPECT_LE(file_requests().size(), 10U);
}

TEST_F(Hub, ARedirectToAFileIsAnError) {
  on_file_ = [](const StandInRequest& /*request*/) {
    return StandInReply{.status = 302, .headers = "Location: file:///etc/passwd\r\n"};
  };
  EXPECT_NE(error_of([&] { (void)pull(); }), "");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/o/n/m-Q8_0.gguf"));
}

TEST_F(Hub, WhatIsMissingOrForbiddenIsSaid) {
  EXPECT_NE(error_of([&] { (void)get_model({"o", "none", ""}, ModelCache(folder_), options_, true); }).find("no model"),
            std::string::npos);
  on_file_ = [](const StandInRequest& /*request*/) { return StandInReply{.status = 401}; };
  EXPECT_NE(error_of([&] { (void)pull(); }).find("HF_TOKEN"), std::string::npos);
  on_file_ = [](const StandInRequest& /*request*/) { return StandInReply{.status = 503}; };
  EXPECT_NE(error_of([&] { (void)pull(); }).find("503"), std::string::npos);
}

TEST_F(Hub, ASplitModelIsPulledWhole) {
  files_ = {{"q/m-Q8_0-00001-of-00002.gguf", "one"}, {"q/m-Q8_0-00002-of-00002.gguf", "two"}};
  const std::string path = pull();
  EXPECT_EQ(path, folder_ + "/o/n/q/m-Q8_0-00001-of-00002.gguf");
  EXPECT_EQ(read(folder_ + "/o/n/q/m-Q8_0-00002-of-00002.gguf"), "two");
  std::filesystem::remove(folder_ + "/o/n/q/m-Q8_0-00002-of-00002.gguf");
  EXPECT_FALSE(ModelCache(folder_).find({"o", "n", ""}));
}

TEST_F(Hub, HostileRepliesAreErrorsAndWriteNothing) {
  const std::string hash(64, 'a');
  const std::string escaping =
      fmt::format(R"({{"siblings":[{{"rfilename":"../../x.gguf","lfs":{{"sha256":"{}","size":3}}}}]}})", hash);
  const std::string huge = fmt::format(
      R"({{"siblings":[{{"rfilename":"x.gguf","lfs":{{"sha256":"{}","size":18446744073709551615}}}}]}})", hash);
  for (const std::string& reply :
       {std::string("{"), std::string("[]"), std::string(R"({"siblings":3})"),
        std::string(R"({"siblings":[3,null,[]]})"), std::string(R"({"siblings":[{"rfilename":5,"lfs":{}}]})"),
        std::string(R"({"siblings":[{"rfilename":"a.gguf","lfs":{"sha256":"../..","size":1}}]})"),
        std::string(R"({"siblings":[{"rfilename":"a.gguf","lfs":{"sha256":1,"size":-1}}]})"), escaping, huge,
        std::string(100'000, '['), std::string("\xff\xfe")}) {
    info_ = reply;
    EXPECT_NE(error_of([&] { (void)pull(); }), "") << reply.substr(0, 100);
  }
  EXPECT_EQ(files_in_cache(), 0U);
}

// A limit on the size of files stands for a disk that is full.
TEST_F(Hub, AFullDiskIsSaidAndContinuedLater) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{50'000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string problem = error_of([&] { (void)pull(); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old);
  EXPECT_NE(problem.find("cannot write"), std::string::npos) << problem;
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/o/n/m-Q8_0.gguf"));
  EXPECT_EQ(read(pull()), files_["m-Q8_0.gguf"]);
  EXPECT_EQ(file_requests().back().first_byte, 50'000U);
}

TEST_F(Hub, OfflineAsksNobody) {
  options_.offline = true;
  EXPECT_NE(error_of([&] { (void)pull(); }).find("`offline`"), std::string::npos);
  EXPECT_TRUE(server_.requests().empty());
  options_.offline = false;
  const std::string path = pull();
  options_.offline = true;
  const size_t before = server_.requests().size();
  EXPECT_EQ(pull(), path);
  EXPECT_EQ(server_.requests().size(), before);
}

TEST_F(Hub, ListShowsWholeFilesAndRemoveTakesThemAway) {
  files_["m-Q4_K_M.gguf"] = "four";
  (void)pull("Q8_0");
  (void)pull("Q4_K_M");
  std::ofstream(folder_ + "/o/n/m-F16.gguf.0123456789abcdef.part") << "some";
  const ModelCache cache(folder_);
  ASSERT_EQ(cache.list().size(), 2U);
  EXPECT_EQ(cache.list()[0].repository, "o/n");
  EXPECT_EQ(cache.list()[0].file, "m-Q4_K_M.gguf");
  EXPECT_EQ(cache.list()[0].bytes, 4U);
  EXPECT_EQ(cache.remove({"o", "n", "Q4_K_M"}).size(), 1U);
  ASSERT_EQ(cache.list().size(), 1U);
  EXPECT_EQ(cache.remove({"o", "n", ""}).size(), 1U);
  EXPECT_EQ(files_in_cache(), 0U);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/o"));
  EXPECT_THROW((void)cache.remove({"o", "n", ""}), Error);
}

TEST(Sha256, MatchesKnownDigests) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace inferno::hub
