#include "serve/access.h"

#include <gtest/gtest.h>

#include "serve/api_error.h"

namespace inferno::serve {
namespace {

TEST(Access, KeysAreLinesAndBadOnesAreNotShown) {
  EXPECT_EQ(parse_keys("# mine\n\n one \r\ntwo"), (std::vector<std::string>{"one", "two"}));
  EXPECT_TRUE(parse_keys("").empty());
  for (const std::string& bad : {std::string("se cret"), std::string("s\x01"), std::string(kMaxKeyBytes + 1, 'k')}) {
    try {
      parse_keys("good\n" + bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find(bad), std::string::npos);
    }
  }
}

TEST(Access, OnlyTheSameKeyIsTheSame) {
  EXPECT_TRUE(same_key("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abd", "abcabc", "Abc"}) EXPECT_FALSE(same_key(other, "abc")) << other;
  EXPECT_FALSE(same_key("", ""));
}

TEST(Access, LoopbackHostsAreNamesThatCanMeanNothingElse) {
  for (const char* host : {"localhost", "LocalHost:8080", "127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:80"}) {
    EXPECT_TRUE(is_loopback_host(host)) << host;
  }
  for (const char* host :
       {"", "localhost.evil.example", "127.evil.example", "127.0.0.1.evil.example", "[::2]", "::1", "[", "10.0.0.1"}) {
    EXPECT_FALSE(is_loopback_host(host)) << host;
  }
}

}  // namespace
}  // namespace inferno::serve
