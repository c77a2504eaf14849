// A server over the built-in model, and a client that can also misbehave: it sends what it is told to.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "serve/server.h"

namespace inferno::testing {

using Json = nlohmann::json;

inline constexpr const char* kText = "/v1/completions";
inline constexpr const char* kChat = "/v1/chat/completions";

struct Reply {
  int status = 0;                                   // 0: the connection was closed instead
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::string body = {};

  [[nodiscard]] Json json() const { return Json::parse(body); }
  // Of a stream: what follows each "data: ", [DONE] included.
  [[nodiscard]] std::vector<std::string> events() const;
  // The same with "event: NAME" before each, which is its type.
  [[nodiscard]] std::vector<std::pair<std::string, Json>> named_events() const;
  // One JSON value per line.
  [[nodiscard]] std::vector<Json> lines() const;
};

class Client {
 public:
  // receive_bytes: of the system, for what was not read yet; 0: its default.
  explicit Client(uint16_t port, int receive_bytes = 0);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False when the server has closed the connection.
  bool send(std::string_view text) const;
  void close();
  void reset();  // closes it so that the server sees an error
  [[nodiscard]] Reply receive(bool has_body = true);
  // Until `text` has arrived; false when the connection ends or nothing comes for long.
  [[nodiscard]] bool receive_until(std::string_view text);
  // Nothing more comes.
  [[nodiscard]] bool at_end();
  [[nodiscard]] int descriptor() const { return socket_; }
  [[nodiscard]] const std::string& received() const { return in_; }
  std::function<void()> on_arrival = {};  // called when bytes have come

  Reply get(const std::string& path, const std::string& headers = {});
  Reply post(const std::string& path, const std::string& body, const std::string& headers = {});
  void send_post(const std::string& path, const std::string& body, const std::string& headers = {}) const;

 private:
  bool receive_more();
  int socket_ = -1;
  std::string in_;
};

// The value of a line of /metrics.
[[nodiscard]] double metric(uint16_t port, const std::string& name);
// Whether it has the value, or at least that, at the latest after some seconds.
[[nodiscard]] bool metric_becomes(uint16_t port, const std::string& name, double value);
[[nodiscard]] bool metric_reaches(uint16_t port, const std::string& name, double value);

// The built-in model, with a chat template.
[[nodiscard]] std::unique_ptr<Engine> story_engine(int32_t max_sequences = 4,
                                                   decltype(EngineOptions::decorate) decorate = {});

class TestServer {
 public:
  explicit TestServer(const std::function<void(serve::ServerOptions&)>& change = {}, int32_t max_sequences = 4,
                      decltype(EngineOptions::decorate) decorate = {});
  TestServer(std::vector<serve::ModelSource> models, const std::function<void(serve::ServerOptions&)>& change = {});
  ~TestServer();
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] uint16_t port() const { return server_->port(); }
  void stop() { server_->stop(); }
  void wait();  // until run() has returned
  [[nodiscard]] double metric(const std::string& name) const { return testing::metric(port(), name); }
  [[nodiscard]] bool metric_becomes(const std::string& name, double value) const {
    return testing::metric_becomes(port(), name, value);
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<serve::Server> server_;
  std::thread thread_;
};

}  // namespace inferno::testing
