// Vectors and scores over HTTP.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "gguf/gguf.h"
#include "serve/client.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

constexpr const char* kEmbed = "/v1/embeddings";

std::vector<serve::ModelSource> encoder(const std::string& name) {
  EngineOptions options;
  options.backend = "simd";
  auto engine = std::make_shared<Engine>(GgufFile::open(find_data("embeddings/" + name + ".gguf").at(0)), options);
  std::vector<serve::ModelSource> models(1);
  models[0] = {.name = name, .facts = serve::facts_of(*engine), .loaded = {.engine = engine}};
  return models;
}

std::vector<float> from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned group = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    group = group << 6 | static_cast<unsigned>(digits.find(c));
    bits += 6;
    if (bits >= 8) bytes += static_cast<char>(group >> (bits -= 8) & 0xFFU);
  }
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), values.size() * 4);
  return values;
}

TEST(ServeEmbeddings, OpenAisFormInFloatsAndBase64) {
  TestServer server(encoder("bert"));
  Client client(server.port());
  const Json both = client.post(kEmbed, R"({"input":["a cat","ship"]})").json();
  ASSERT_EQ(both["data"].size(), 2U);
  EXPECT_EQ(both["object"], "list");
  EXPECT_EQ(both["data"][1]["index"], 1);
  EXPECT_EQ(both["usage"]["prompt_tokens"], 6 + 6);  // letters, and both ends
  const auto cat = both["data"][0]["embedding"].get<std::vector<float>>();
  EXPECT_EQ(cat.size(), 32U);
  double squares = 0;
  for (const float v : cat) squares += static_cast<double>(v) * v;
  EXPECT_NEAR(squares, 1, 1e-5);
  const Json coded = client.post(kEmbed, R"({"input":"a cat","encoding_format":"base64"})").json();
  EXPECT_EQ(from_base64(coded["data"][0]["embedding"]), cat);
  const Json short_one = client.post(kEmbed, R"({"input":"a cat","dimensions":8})").json();
  EXPECT_EQ(short_one["data"][0]["embedding"].size(), 8U);
  // [CLS] a c ##a ##t [SEP]
  const Json ids = client.post(kEmbed, R"({"input":[1,4,6,30,49,2]})").json();
  EXPECT_EQ(ids["data"][0]["embedding"].get<std::vector<float>>(), cat);
  EXPECT_EQ(client.post(kEmbed, R"({"input":[[1,4,2],[1,5,2]]})").json()["data"].size(), 2U);
}

TEST(ServeEmbeddings, WrongRequestsAreOneLineAndNoServerErrors) {
  TestServer server(encoder("bert"));
  Client client(server.port());
  for (const char* wrong :
       {R"({})", R"({"input":[]})", R"({"input":7})", R"({"input":[7.5]})", R"({"input":["a",{}]})",
        R"({"input":[96]})", R"({"input":[-1]})", R"({"input":"a","dimensions":33})", R"({"input":"a","dimensions":0})",
        R"({"input":"a","encoding_format":"hex"})", R"({"input":[[]]})"}) {
    const Reply reply = client.post(kEmbed, wrong);
    EXPECT_EQ(reply.status, 400) << wrong << reply.body;
  }
  const std::string long_text = R"({"input":")" + std::string(90, 'a') + " " + std::string(90, 'b') + R"("})";
  EXPECT_EQ(client.post(kEmbed, long_text).status, 400);
  EXPECT_EQ(client.post("/api/embed", long_text).status, 200);  // cut
  EXPECT_EQ(client.get("/props").status, 200);
  EXPECT_EQ(client.get("/slots").status, 200);
  EXPECT_EQ(client.get("/metrics").status, 200);
  EXPECT_EQ(client.get("/debug/steps").status, 200);
}

TEST(ServeEmbeddings, TokensAndStepsAreCounted) {
  TestServer server(encoder("bert"));
  Client client(server.port());
  EXPECT_EQ(client.post(kEmbed, R"({"input":["a cat","ship"]})").json()["usage"]["prompt_tokens"], 12);
  const std::string metrics = client.get("/metrics").body;
  EXPECT_NE(metrics.find("\ninferno_prompt_tokens_total 12\n"), std::string::npos) << metrics;
  EXPECT_EQ(metrics.find("\ninferno_steps_total 0\n"), std::string::npos) << metrics;
}

TEST(ServeEmbeddings, OllamasForms) {
  TestServer server(encoder("bert"));
  Client client(server.port());
  const Json made = client.post("/api/embed", R"({"model":"bert","input":["a cat","ship"]})").json();
  ASSERT_EQ(made["embeddings"].size(), 2U);
  EXPECT_EQ(made["prompt_eval_count"], 12);
  const Json one = client.post("/api/embeddings", R"({"model":"bert","prompt":"ship"})").json();
  EXPECT_EQ(one["embedding"], made["embeddings"][1]);
  EXPECT_EQ(client.post("/api/show", R"({"model":"bert"})").json()["capabilities"][0], "embedding");
}

TEST(ServeEmbeddings, RanksDocumentsBestFirst) {
  TestServer server(encoder("bert-rank"));
  Client client(server.port());
  const std::string body = R"({"query":"a cat","documents":["ship",{"text":"a dog"},"cat"])";
  const Json all = client.post("/v1/rerank", body + "}").json();
  ASSERT_EQ(all["results"].size(), 3U);
  EXPECT_GE(all["results"][0]["relevance_score"], all["results"][1]["relevance_score"]);
  EXPECT_GE(all["results"][1]["relevance_score"], all["results"][2]["relevance_score"]);
  const Json best = client.post("/rerank", body + R"(,"top_n":1,"return_documents":true})").json();
  ASSERT_EQ(best["results"].size(), 1U);
  EXPECT_EQ(best["results"][0]["index"], all["results"][0]["index"]);
  EXPECT_TRUE(best["results"][0]["document"]["text"].is_string());
  for (const char* wrong : {R"({"query":"a"})", R"({"query":"a","documents":[]})", R"({"documents":["a"]})",
                            R"({"query":"a","documents":[7]})", R"({"query":"a","documents":["b"],"top_n":0})"}) {
    EXPECT_EQ(client.post("/v1/rerank", wrong).status, 400) << wrong;
  }
}

TEST(ServeEmbeddings, LlamaServersOwnForm) {
  TestServer server(encoder("bert"));
  Client client(server.port());
  const Json cat = client.post(kEmbed, R"({"input":"a cat"})").json()["data"][0]["embedding"];
  for (const char* path : {"/embedding", "/embeddings"}) {
    const Json one = client.post(path, R"({"content":"a cat"})").json();
    ASSERT_EQ(one.size(), 1U) << path;
    EXPECT_EQ(one[0]["index"], 0);
    EXPECT_EQ(one[0]["embedding"], Json::array({cat}));
  }
  const Json raw = client.post("/embedding", R"({"input":["a cat","ship"],"embd_normalize":-1})").json();
  ASSERT_EQ(raw.size(), 2U);
  EXPECT_NE(raw[0]["embedding"][0], cat);
  EXPECT_EQ(client.post("/embedding", R"({"content":"a","embd_normalize":1})").status, 501);
  EXPECT_EQ(client.post("/embedding", R"({"content":"a","embd_normalize":-2})").status, 400);
  EXPECT_EQ(client.post("/embedding", "{}").status, 400);
}

// 400 and "model" in the form of the API at that path: the request is well formed, the model cannot.
void expect_wrong_model(Client& client, const std::string& path, const std::string& body) {
  const Reply reply = client.post(path, body);
  EXPECT_EQ(reply.status, 400) << path << reply.body;
  const Json error = reply.json()["error"];
  const std::string message = error.is_string() ? error.get<std::string>() : error["message"].get<std::string>();
  EXPECT_NE(message.find("`model`"), std::string::npos) << path << reply.body;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  if (path.starts_with("/api/")) {
    EXPECT_TRUE(error.is_string()) << reply.body;
  } else {
    EXPECT_EQ(error["type"], "invalid_request_error") << reply.body;
    if (path.starts_with("/v1/messages")) {
      EXPECT_EQ(reply.json()["type"], "error");
    } else {
      EXPECT_EQ(error["param"], "model") << reply.body;
    }
  }
}

TEST(ServeEmbeddings, AModelThatMakesTextRefusesThemInEachApisForm) {
  TestServer server;
  Client client(server.port());
  for (const char* path : {kEmbed, "/embedding", "/api/embed"}) {
    expect_wrong_model(client, path, R"({"input":"The sea"})");
  }
  expect_wrong_model(client, "/api/embeddings", R"({"prompt":"The sea"})");
  expect_wrong_model(client, "/v1/rerank", R"({"query":"The sea","documents":["a ship"]})");
  EXPECT_EQ(client.post(kText, R"({"prompt":"The sea","max_tokens":3})").status, 200);
}

TEST(ServeEmbeddings, AnEmbeddingModelRefusesTextInEachApisForm) {
  TestServer server(encoder("bert"));
  Client client(server.port());
  for (const std::string stream : {"false", "true"}) {
    const std::string rest = R"(,"max_tokens":3,"stream":)" + stream + "}";
    const std::string chat = R"({"model":"bert","messages":[{"role":"user","content":"a"}])" + rest;
    for (const char* path : {kChat, "/v1/messages", "/api/chat"}) expect_wrong_model(client, path, chat);
    for (const char* path : {kText, "/completion", "/api/generate"}) {
      expect_wrong_model(client, path, R"({"model":"bert","prompt":"a")" + rest);
    }
    expect_wrong_model(client, "/v1/responses", R"({"model":"bert","input":"a","stream":)" + stream + "}");
  }
  expect_wrong_model(client, "/v1/rerank", R"({"query":"a","documents":["b"]})");
  EXPECT_EQ(client.post(kEmbed, R"({"input":"a cat"})").status, 200);
}

TEST(ServeEmbeddings, AModelThatScoresPairsRefusesVectors) {
  TestServer server(encoder("bert-rank"));
  Client client(server.port());
  expect_wrong_model(client, kEmbed, R"({"input":"a cat"})");
}

TEST(ServeEmbeddings, AModelMadeForBothDoesBoth) {
  TestServer server(encoder("qwen3"));
  Client client(server.port());
  EXPECT_EQ(client.post(kEmbed, R"({"input":[1,5,9,2]})").json()["data"][0]["embedding"].size(), 32U);
  EXPECT_EQ(client.post(kText, R"({"prompt":[1,5,9],"max_tokens":3})").status, 200);
  EXPECT_EQ(client.post("/api/show", R"({"model":"qwen3"})").json()["capabilities"],
            Json::array({"completion", "embedding"}));
}

TEST(ServeEmbeddings, ManyThatWaitAreRefusedAndThoseWhoLeaveAreForgotten) {
  TestServer server(encoder("modern-bert"), [](serve::ServerOptions& options) { options.max_queue = 1; });
  std::string many = R"({"input":[[1])";
  for (int i = 0; i < 2000; ++i) many += ",[1,5,9,2,7,4,8]";
  many += "]}";
  // One runs or waits until its client leaves: others are refused, not queued without end.
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    Client first(server.port());
    first.send_post(kEmbed, many);
    Client second(server.port());
    for (int j = 0; j < 20 && refused == 0; ++j) {
      const Reply reply = second.post(kEmbed, R"({"input":[1,5]})");
      if (reply.status == 429) ++refused;
      EXPECT_TRUE(reply.status == 200 || reply.status == 429) << reply.body;
    }
    first.reset();
  }
  EXPECT_GT(refused, 0);
  Client last(server.port());
  for (int i = 0; i < 1000; ++i) {
    if (last.post(kEmbed, R"({"input":[1,5]})").status == 200) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "requests of clients that left are still counted";
}

}  // namespace
}  // namespace inferno::testing
