// A request and an answer as the API sees them, whatever carries them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inferno::serve {

// All of a request but its body.
struct HttpHead {
  std::string method;
  std::string path;   // without the query
  std::string query;  // what follows the "?"
  std::string host;
  std::string origin;                    // empty: none
  std::string credential;                // of "Authorization: Bearer" or "X-Api-Key"
  std::string id;                        // of the request, in its log line and in X-Request-Id
  std::string asked_method;              // of a browser that asks first, as the next: Access-Control-Request-Method
  std::string asked_fields;              // Access-Control-Request-Headers
  std::string allowed_origin;            // whose pages may read the answer; empty: the server's own alone
  size_t key = kNoKey;                   // which of the server's API keys it came with
  std::chrono::milliseconds timeout{0};  // of X-Request-Timeout; 0: none

  // A browser asks whether a page of another site may send a request.
  [[nodiscard]] bool is_preflight() const { return method == "OPTIONS" && !origin.empty() && !asked_method.empty(); }

  static constexpr size_t kNoKey = SIZE_MAX;
};

// What the log says about an answer beside its head.
struct RequestNote {
  std::string error = {};   // its message; empty: none
  bool has_tokens = false;  // what follows is set
  std::string model = {};
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;
  std::string_view reuse_end = {};
  int64_t generated_tokens = 0;
  double queue_ms = 0;
  double first_token_ms = 0;
  double decode_ms = 0;
};

struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Where the answer to one request goes: respond(), or begin(), write() any number of times and end(). What is written
// leaves with the next flush() or end(). Once the client is gone, or after an answer that took it too long, nothing
// happens. Only on the event loop's thread.
class Responder {
 public:
  Responder() = default;
  virtual ~Responder() = default;
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  virtual void respond(HttpResponse response, const RequestNote& note) = 0;
  virtual void begin(std::string_view content_type) = 0;  // of a stream
  virtual void write(std::string_view text) = 0;
  virtual void flush() = 0;
  virtual void end(const RequestNote& note) = 0;
};

// Work that was started for a request.
class Exchange {
 public:
  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // The client is gone. On the event loop's thread.
  virtual void cancel() noexcept = 0;
  // The time of X-Request-Timeout is over: the client is told.
  virtual void expire() = 0;
  // Nothing was sent for a while: a stream may show that it lives.
  virtual void on_silence() {}
};

}  // namespace inferno::serve
