// A stand-in for the hub on loopback, for tests: one reply per connection, as a function says.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace inferno::hub {

struct StandInRequest {
  std::string path;           // with the query
  std::string authorization;  // of the header, or empty
  size_t first_byte = 0;      // of the range, or 0
};

struct StandInReply {
  int status = 200;
  std::string headers = {};  // further lines, each ending in \r\n
  std::string body = {};
  size_t cut_at = std::string::npos;  // closes the connection after so many bytes of the body
};

class StandIn {
 public:
  using Handler = std::function<StandInReply(const StandInRequest&)>;
  explicit StandIn(Handler handler);
  ~StandIn();
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  [[nodiscard]] std::string address() const;  // http://127.0.0.1:PORT
  [[nodiscard]] std::vector<StandInRequest> requests() const;

 private:
  void serve();
  void answer(int connection);

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;
  std::vector<StandInRequest> requests_;
  std::thread thread_;
};

// The part of a file that a request wants, as 200 or 206.
[[nodiscard]] StandInReply reply_with(const StandInRequest& request, const std::string& file);

}  // namespace inferno::hub
