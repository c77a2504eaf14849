#include "serve/bad_clients.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace inferno::testing {
namespace {

// No answer of a client's making is an error of the server.
void expect_clients_fault(const Reply& reply, const std::string& what) {
  EXPECT_TRUE(reply.status == 501 || (reply.status >= 200 && reply.status < 500))
      << reply.status << " for " << what.substr(0, 200) << ": " << reply.body.substr(0, 200);
}

std::string text_of(const Reply& reply) {
  std::string text;
  for (const std::string& event : reply.events()) {
    if (event == "[DONE]") return text;
    text += Json::parse(event)["choices"][0]["text"].get<std::string>();
  }
  return {};
}

struct Example {
  std::string path, body;
};

std::vector<Example> examples() {
  const std::string chat = R"("messages":[{"role":"user","content":"Hello é"}])";
  return {
      {kText, R"({"prompt":"The sea","max_tokens":2,"temperature":0.5,"stop":["x"],"logit_bias":{"5":1.5},"n":1})"},
      {kText, R"({"prompt":[[1,2,3],[4]],"max_tokens":1,"logprobs":2,"stop_token_ids":[7],"echo":false})"},
      {"/v1/chat/completions", "{" + chat + R"(,"max_tokens":2,"logprobs":true,"top_logprobs":1,"seed":1})"},
      {"/v1/responses", R"({"input":"Hello","max_output_tokens":2,"instructions":"x","reasoning":{"effort":"none"}})"},
      {"/v1/messages", "{" + chat + R"(,"max_tokens":2,"system":[{"type":"text","text":"a"}],"stop_sequences":["q"]})"},
      {"/v1/messages/count_tokens", "{" + chat + "}"},
      {"/completion",
       R"({"prompt":"The sea","n_predict":2,"n_probs":1,"logit_bias":[[5,false]],"return_tokens":true})"},
      {"/api/chat", "{" + chat + R"(,"stream":false,"options":{"num_predict":2,"seed":3,"stop":["w"]}})"},
      {"/api/generate", R"({"prompt":"Hello","stream":false,"raw":true,"options":{"num_predict":2}})"},
      {"/tokenize", R"({"content":"Hello","with_pieces":true,"add_special":true})"},
      {"/detokenize", R"({"tokens":[1,2,3]})"},
      {"/apply-template", "{" + chat + "}"},
      {"/api/show", R"({"model":"story"})"},
  };
}

}  // namespace

std::string completion(bool stream, int tokens, int seed) {
  return Json{{"prompt", "The sea"}, {"max_tokens", tokens}, {"ignore_eos", true}, {"stream", stream}, {"seed", seed}}
      .dump();
}

void Neighbour::run(uint16_t port, int seed) {
  using Clock = std::chrono::steady_clock;
  Client client(port);
  std::string first;
  do {
    Clock::time_point last{};
    client.on_arrival = [&] {
      const Clock::time_point now = Clock::now();
      if (last != Clock::time_point{}) gaps_.push_back(std::chrono::duration<float, std::milli>(now - last).count());
      last = now;
    };
    const Reply reply = client.post(kText, completion(true, 60, seed));
    const std::string text = reply.status == 200 ? text_of(reply) : "";
    if (first.empty()) first = text;
    if (text.empty() || text != first) ++broken_;
    ++streams_;
  } while (!stop_);
}

void BadClients::vanish(int count) {
  for (int i = 0; i < count; ++i) {
    Client client(port_);
    const std::string body = completion(i % 2 == 0, 400, i);
    const std::string request =
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", kText, body.size(), body);
    const bool whole = i % 4 != 0;
    client.send(std::string_view(request).substr(0, whole ? request.size() : random_() % request.size()));
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 20'000));
    if (i % 3 == 0) client.reset();
    client.close();
  }
}

void BadClients::stay_silent(int count) const {
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < count; ++i) {
    silent.push_back(std::make_unique<Client>(port_));
    if (i % 3 == 1) silent.back()->send("POST /v1/completions HTTP/1.1\r\nHost: loc");
    if (i % 3 == 2) silent.back()->send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{\"");
  }
  EXPECT_EQ(Client(port_).get("/health").status, 200);
}

void BadClients::read_nothing(int count) const {
  const Json body = {{"prompt", "The sea"}, {"max_tokens", 300}, {"ignore_eos", true},
                     {"stream", true},      {"logprobs", 20},    {"n", 4}};
  const double dropped = metric(port_, "inferno_requests_cancelled_total");
  std::vector<std::unique_ptr<Client>> lazy;
  for (int i = 0; i < count; ++i) {
    lazy.push_back(std::make_unique<Client>(port_, 4096));
    lazy.back()->send_post(kText, body.dump());
  }
  EXPECT_TRUE(metric_reaches(port_, "inferno_requests_cancelled_total", dropped + count));
}

void BadClients::send_without_end() const {
  Client announced(port_);
  announced.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n{");
  EXPECT_EQ(announced.receive().status, 413);
  Client chunked(port_);
  chunked.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "100000\r\n" + std::string(1 << 20, ' ') + "\r\n";
  for (int n = 0; n < 10 && chunked.send(chunk); ++n) {
  }
  EXPECT_EQ(chunked.receive().status, 413);
  Client lines(port_);
  std::string many;
  for (int n = 0; n < 1000; ++n) many += "a: b\r\n";
  lines.send("GET /health HTTP/1.1\r\nHost: localhost\r\n");
  for (int n = 0; n < 100 && lines.send(many); ++n) {
  }
  EXPECT_EQ(lines.receive().status, 431);
  Client extension(port_);
  extension.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5;");
  const std::string noise(1 << 16, 'x');
  for (int n = 0; n < 4 && extension.send(noise); ++n) {
  }
}

void BadClients::send_ends_of_two_opinions() const {
  const std::string head = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n";
  const std::string hidden = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  const std::vector<std::string> heads = {
      "Content-Length: 2\r\nContent-Length: 60\r\n",
      "Content-Length: 2\r\nContent-Length: 2\r\n",
      "Content-Length: 2, 60\r\n",
      "Content-Length: 2 60\r\n",
      "Content-Length: +2\r\n",
      "Content-Length: -1\r\n",
      "Content-Length: 0x2\r\n",
      "Content-Length: 18446744073709551618\r\n",
      "Content-Length : 2\r\n",
      "Content-Length\r\n",
      "Content-Length: 2\r\n" + chunked,
      chunked + "Content-Length: 2\r\n",
      chunked + chunked,
      "Transfer-Encoding: chunked, identity\r\n",
      "Transfer-Encoding: identity, chunked\r\n",
      "Transfer-Encoding: xchunked\r\n",
      "Transfer-Encoding : chunked\r\n",
      "Transfer-Encoding:\r\n chunked\r\n",
      "X: a\r\n\tContent-Length: 60\r\nContent-Length: 2\r\n",
      "X: a\rContent-Length: 60\r\nContent-Length: 2\r\n",
      std::string("X: a\0b\r\nContent-Length: 2\r\n", 26),
  };
  for (const std::string& fields : heads) {
    Client client(port_);
    client.send(head + fields + "\r\n{}" + hidden);
    const Reply reply = client.receive();
    EXPECT_GE(reply.status, 400) << fields;
    EXPECT_TRUE(client.at_end()) << fields;
  }
  for (const std::string size : {"-2", "+2", "0x2", "2 ", "g", "fffffffffffffffff", "ffffffffffffffff", "\t2", ""}) {
    Client client(port_);
    client.send(head + chunked + "\r\n" + size + "\r\n{}\r\n0\r\n\r\n" + hidden);
    const Reply reply = client.receive();
    EXPECT_GE(reply.status, 400) << size;
    EXPECT_TRUE(client.at_end()) << size;
  }
}

void BadClients::send_many_at_once() const {
  Client client(port_);
  std::string requests;
  for (int n = 0; n < 200; ++n) {
    requests += n % 2 == 0 ? "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
                           : "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
  }
  client.send(requests);
  for (int n = 0; n < 200; ++n) {
    const Reply reply = client.receive();
    ASSERT_EQ(reply.status, 200);
    EXPECT_EQ(reply.json().contains("status"), n % 2 == 0);
  }
}

void BadClients::send_broken_json(int count) {
  auto client = std::make_unique<Client>(port_);
  const std::vector<Example> all = examples();
  constexpr std::string_view kBytes = "\"{}[]:,\\0-9.eEtfn\x80\xC0\xED\xFF\x01 u";
  for (int i = 0; i < count; ++i) {
    Example one = all[static_cast<size_t>(i) % all.size()];
    for (auto edits = 1 + random_() % 3; edits > 0 && !one.body.empty(); --edits) {
      const size_t at = random_() % one.body.size();
      const char byte = kBytes[random_() % kBytes.size()];
      switch (random_() % 4) {
        case 0:
          one.body[at] = byte;
          break;
        case 1:
          one.body.insert(at, 1, byte);
          break;
        case 2:
          one.body.erase(at, 1 + random_() % 4);
          break;
        default:
          one.body.insert(at, one.body.substr(random_() % one.body.size(), random_() % 20));
      }
    }
    const Reply reply = client->post(one.path, one.body);
    expect_clients_fault(reply, one.path + " " + one.body);
    if (reply.status == 0) client = std::make_unique<Client>(port_);
  }
}

void BadClients::send_odd_numbers(size_t each) {
  const std::vector<std::string> values = {"-1",   "-1e30",   "1e30", "1e308",   "1e999", "9223372036854775808",
                                           "0.5",  "-0.0",    "NaN",  "\"NaN\"", "[]",    "{}",
                                           "true", "[[1e30]]"};
  const std::vector<std::string> fields = {"max_tokens",
                                           "max_completion_tokens",
                                           "max_output_tokens",
                                           "n_predict",
                                           "temperature",
                                           "top_p",
                                           "top_k",
                                           "min_p",
                                           "n",
                                           "n_cmpl",
                                           "best_of",
                                           "seed",
                                           "logprobs",
                                           "top_logprobs",
                                           "n_probs",
                                           "presence_penalty",
                                           "frequency_penalty",
                                           "repeat_penalty",
                                           "repeat_last_n",
                                           "stop",
                                           "stop_token_ids",
                                           "logit_bias",
                                           "prompt",
                                           "messages",
                                           "input",
                                           "tokens",
                                           "content",
                                           "system",
                                           "options",
                                           "stream",
                                           "stream_options",
                                           "echo",
                                           "model",
                                           "typical_p",
                                           "mirostat",
                                           "thinking"};
  Client client(port_);
  for (const Example& example : examples()) {
    for (const std::string& field : fields) {
      // Every field in every API; of the values a few each, all of them over the whole table.
      for (size_t i = 0; i < std::min(each, values.size()); ++i) {
        const std::string& value = values[turn_++ % values.size()];
        const std::string body = example.body.substr(0, example.body.size() - 1) + ",\"" + field + "\":" + value + "}";
        expect_clients_fault(client.post(example.path, body), example.path + " " + body);
      }
    }
  }
}

void BadClients::ask_too_much() const {
  const auto strings = [](size_t count, const std::string& item) {
    std::string text = "[";
    for (size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + item;
    return text + "]";
  };
  std::string biases = "{";
  for (int i = 0; i < 100'000; ++i) biases += fmt::format("{}\"{}\":1", i == 0 ? "" : ",", i);
  const std::vector<std::pair<std::string, int>> cases = {
      {R"({"prompt":"a","n":1000000})", 400},
      {R"({"prompt":"a","best_of":1000000})", 400},
      {R"({"prompt":"a","logprobs":1000000})", 400},
      {R"({"prompt":"a","stop":)" + strings(100'000, "\"x\"") + "}", 400},
      {R"({"prompt":"a","stop_token_ids":)" + strings(100'000, "1") + "}", 400},
      {R"({"prompt":)" + strings(1'000'000, "5") + "}", 400},
      {R"({"prompt":)" + strings(100'000, "\"a\"") + "}", 400},
      {R"({"prompt":")" + std::string(2'000'000, 'a') + "\"}", 400},
      {R"({"prompt":"a","logit_bias":)" + biases + "}}", 400},
      {R"({"prompt":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}", 400},
      {R"({"prompt":"a","model":"../../etc/passwd"})", 404},
      {R"({"prompt":"a","model":"/etc/passwd"})", 404},
      {R"({"prompt":[-1]})", 400},
      {R"({"prompt":[999999999]})", 400},
      {R"({"prompt":""})", 400},
  };
  for (const auto& [body, status] : cases) {
    EXPECT_EQ(Client(port_).post(kText, body).status, status) << body.substr(0, 60);
  }
  const std::string many = strings(100'000, R"({"role":"user","content":"a"})");
  EXPECT_EQ(Client(port_).post("/v1/chat/completions", R"({"messages":)" + many + "}").status, 400);
}

}  // namespace inferno::testing
