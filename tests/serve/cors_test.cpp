// Pages of other sites: refused unless their origin was named, and their browsers are told what they may do.
#include <gtest/gtest.h>

#include "serve/client.h"

namespace inferno::testing {
namespace {

constexpr const char* kPage = "Origin: https://page.example\r\n";

Reply preflight(Client& client, const std::string& path, const std::string& method, const std::string& more = {}) {
  client.send("OPTIONS " + path + " HTTP/1.1\r\nHost: localhost\r\n" + kPage +
              "Access-Control-Request-Method: " + method + "\r\n" + more + "\r\n");
  return client.receive(false);
}

TEST(ServeCors, IsOffUnlessAnOriginIsNamed) {
  const TestServer server;
  Client client(server.port());
  EXPECT_EQ(preflight(client, kText, "POST").status, 403);
  const Reply own = Client(server.port()).get("/v1/models", "Origin: http://localhost:3000\r\n");
  EXPECT_EQ(own.status, 200);
  EXPECT_FALSE(own.headers.contains("access-control-allow-origin"));
  const TestServer with_keys([](serve::ServerOptions& options) { options.keys = {"key"}; });
  Client other(with_keys.port());
  const Reply refused = preflight(other, kText, "POST");
  EXPECT_EQ(refused.status, 401);
  EXPECT_FALSE(refused.headers.contains("access-control-allow-origin"));
}

TEST(ServeCors, PagesOfANamedOriginMayUseItAndNoOthers) {
  const TestServer server([](serve::ServerOptions& options) {
    options.cors_origins = {"http://first.example:8000", "https://page.example"};
  });
  Client client(server.port());
  const Reply asked = preflight(client, kText, "POST",
                                "Access-Control-Request-Headers: authorization, content-type, x-stainless-os\r\n");
  EXPECT_EQ(asked.status, 200);
  EXPECT_EQ(asked.headers.at("access-control-allow-origin"), "https://page.example");
  EXPECT_EQ(asked.headers.at("access-control-allow-methods"), "POST");
  EXPECT_EQ(asked.headers.at("access-control-allow-headers"), "authorization, content-type, x-stainless-os");
  EXPECT_EQ(asked.headers.at("vary"), "Origin");
  EXPECT_EQ(asked.body, "");
  // The same connection goes on, and errors can be read, too.
  const Reply answer = client.post(kText, R"({"prompt":"A","max_tokens":2})", kPage);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://page.example");
  const Reply wrong = client.post(kText, "{", kPage);
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(wrong.headers.at("access-control-allow-origin"), "https://page.example");
  const Reply stream = client.post(kText, R"({"prompt":"A","max_tokens":2,"stream":true})", kPage);
  EXPECT_EQ(stream.headers.at("access-control-allow-origin"), "https://page.example");
  EXPECT_EQ(stream.events().back(), "[DONE]");
  EXPECT_EQ(client.get("/v1/models", "Origin: https://page.example.evil.example\r\n").status, 403);
  EXPECT_EQ(client.get("/v1/models", "Origin: http://page.example\r\n").status, 403);
  // Of a path that is not there nothing is allowed, and what is no list of names is not repeated.
  EXPECT_EQ(preflight(client, "/nowhere", "POST").status, 404);
  Client odd(server.port());
  EXPECT_FALSE(preflight(odd, kText, "POST", "Access-Control-Request-Headers: a<b>\r\n")
                   .headers.contains("access-control-allow-headers"));
  // OPTIONS without being asked for by a browser is another method.
  Client plain(server.port());
  plain.send("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(plain.receive().status, 405);
}

TEST(ServeCors, LocalhostIsAnyPortOfThisMachineAndNoNameThatBeginsLikeIt) {
  const TestServer server([](serve::ServerOptions& options) { options.cors_origins = {"localhost"}; });
  const auto allowed = [&](const std::string& origin) {
    Client client(server.port());
    client.send("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: " + origin +
                "\r\nAccess-Control-Request-Method: POST\r\n\r\n");
    const Reply reply = client.receive();
    EXPECT_EQ(reply.status, 200) << origin;
    const auto found = reply.headers.find("access-control-allow-origin");
    return found == reply.headers.end() ? std::string() : found->second;
  };
  for (const char* own : {"http://localhost", "http://localhost:3000", "https://127.0.0.1:8443", "http://[::1]:3000"})
    EXPECT_EQ(allowed(own), own);
  for (const char* other : {"https://page.example", "http://localhost.evil.example", "http://notlocalhost", "null"})
    EXPECT_EQ(allowed(other), "") << other;
  // It is refused, should it come all the same.
  EXPECT_EQ(Client(server.port()).get("/v1/models", kPage).status, 403);
}

TEST(ServeCors, AKeyIsNeededAllTheSame) {
  const TestServer server([](serve::ServerOptions& options) {
    options.keys = {"key"};
    options.cors_origins = {"*"};
  });
  Client client(server.port());
  EXPECT_EQ(preflight(client, "/v1/models", "GET").headers.at("access-control-allow-origin"), "*");
  const Reply refused = client.get("/v1/models", kPage);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("access-control-allow-origin"), "*");
  EXPECT_EQ(client.get("/v1/models", std::string(kPage) + "Authorization: Bearer key\r\n").status, 200);
}

TEST(ServeCors, WhatIsNoOriginIsRefusedAtTheStart) {
  const auto engine = story_engine();
  for (const char* bad :
       {"", "page.example", "https://", "https://page.example/", "https://*.example", "null", "https://a b"}) {
    serve::ServerOptions options{.port = 0};
    options.cors_origins = {bad};
    EXPECT_THROW(serve::Server(*engine, options), Error) << bad;
  }
}

}  // namespace
}  // namespace inferno::testing
