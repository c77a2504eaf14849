// A request and an answer as the API sees them, whatever carries them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inferno::serve {

// All of a request but its body.
struct HttpHead {
  std::string method;
  std::string path;  // without the query
  std::string host;
  std::string origin;      // empty: none
  std::string credential;  // of "Authorization: Bearer" or "X-Api-Key"
  std::string id;          // of the request, in its log line and in X-Request-Id
};

struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Where the answer to one request goes: respond(), or begin(), write() any number of times and end(). Once the client
// is gone, or after an answer that took it too long, nothing happens. Only on the event loop's thread.
class Responder {
 public:
  Responder() = default;
  virtual ~Responder() = default;
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  // `note` goes into the log line: "prompt=12 cached=8 new=20".
  virtual void respond(HttpResponse response, const std::string& note) = 0;
  virtual void begin() = 0;  // of a stream of events
  virtual void write(std::string_view text) = 0;
  virtual void end(const std::string& note) = 0;
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
};

}  // namespace inferno::serve
