// One client's connection: requests in, one after the other, answers out. All on the event loop's thread.
//
//   idle -> head -> body -> busy -> flushing -> idle
//                                -> streaming -> flushing
//
// While a request is busy or streams the connection is still read, into a bounded buffer, so that a client that goes
// away is noticed at once. An answer given before the body was read ends the connection, after what the client still
// sends was thrown away for a moment: closing at once would take the answer from it.
#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "serve/api.h"
#include "serve/api_error.h"
#include "serve/http.h"
#include "serve/request_parser.h"
#include "serve/server.h"
#include "serve/tls.h"

namespace inferno::serve {

class Connection;

// What connections share; outlives them.
struct ConnectionShared {
  Api& api;
  const ServerOptions& options;
  const TlsContext* tls = nullptr;  // null: plain HTTP
  std::set<Connection*> all = {};
  uint64_t buffered = 0;                   // bytes of requests being read
  bool draining = false;                   // no connection is kept after its answer
  std::array<char, 64 * 1024> input = {};  // where sockets are read to
};

class Connection final : public Responder, public std::enable_shared_from_this<Connection> {
 public:
  using Tcp = boost::asio::ip::tcp;

  Connection(Tcp::socket socket, ConnectionShared& shared);
  ~Connection() override;

  void start();
  void close() noexcept;
  [[nodiscard]] bool is_idle() const { return phase_ == Phase::idle; }
  // A request was read and its answer is not sent.
  [[nodiscard]] bool is_answering() const {
    return phase_ == Phase::busy || phase_ == Phase::streaming || phase_ == Phase::flushing;
  }

  void respond(HttpResponse response, const RequestNote& note) override;
  void begin(std::string_view content_type) override;
  void write(std::string_view text) override;
  void flush() override;
  void end(const RequestNote& note) override;

 private:
  using Error = boost::system::error_code;
  using Clock = std::chrono::steady_clock;
  enum class Phase : uint8_t { idle, head, body, busy, streaming, flushing, lingering, closed };

  // ---- in (connection.cpp)
  void wait_readable();
  void on_readable();
  void receive(std::string_view bytes);
  [[nodiscard]] bool decrypt(std::string_view bytes);
  void on_end_of_input();
  void parse();
  [[nodiscard]] bool parse_some();
  [[nodiscard]] bool on_head();
  void on_request();
  void reject(const ApiError& error);
  void count_buffered();

  // ---- out (connection_out.cpp)
  [[nodiscard]] bool add(std::string_view text);
  void send(std::string_view text);
  void write_what_fits();
  void write_some();
  void on_flushed();
  void linger();
  void drop();
  void send_now(std::string_view bytes) noexcept;
  void end_tls() noexcept;

  // ---- time (connection.cpp)
  void set_deadline(std::chrono::milliseconds from_now);
  void wait_timer();
  void on_deadline();
  void log(const RequestNote& note) noexcept;
  void renew_deadline();
  [[nodiscard]] bool expire();

  Tcp::socket socket_;
  boost::asio::steady_timer timer_;
  ConnectionShared& shared_;
  Phase phase_ = Phase::idle;
  bool reading_ = false;
  bool writing_ = false;
  bool end_of_input_ = false;
  bool heard_ = false;  // anything from the client, of TLS
  bool keep_alive_ = true;
  bool chunked_ = false;
  bool comments_ = false;  // the stream may have comments
  bool timer_waits_ = false;
  int status_ = 0;         // of the answer
  uint64_t answered_ = 0;  // bytes
  uint64_t held_ = 0;      // counted in shared_.buffered
  Clock::time_point deadline_;
  Clock::time_point expiry_ = Clock::time_point::max();  // of the request, by X-Request-Timeout
  Clock::time_point begun_;
  std::string in_;       // read and not parsed
  std::string out_;      // to be sent
  std::string sending_;  // being sent, from sent_ on
  size_t sent_ = 0;
  std::unique_ptr<TlsSession> tls_;  // null: plain HTTP
  std::unique_ptr<RequestParser> parser_;
  HttpHead head_;
  std::string peer_;
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace inferno::serve
