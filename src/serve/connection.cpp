#include "serve/connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http.hpp>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "serve/request_log.h"

namespace inferno::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr uint32_t kMaxHeadBytes = 16 * 1024;
constexpr size_t kMaxHeadFields = 128;
// Read ahead while a request is being answered; then the client waits.
constexpr size_t kMaxReadAhead = 64 * 1024;
// Of the system, for a client that does not read: it would take megabytes for each.
constexpr int kSendBufferBytes = 128 * 1024;
constexpr std::chrono::milliseconds kLingerTime{2000};
constexpr double kMaxTimeoutSeconds = 86'400;

std::string_view view(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

ApiError error_of(const boost::beast::error_code& error) {
  if (error == http::error::header_limit)
    return {431, fmt::format("the head of the request is longer than {} bytes", kMaxHeadBytes)};
  if (error == http::error::body_limit) return {413, "the body of the request is too long"};
  if (error == http::error::bad_version) return {505, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
  return {400, fmt::format("this is not HTTP: {}", error.message())};
}

std::string status_line(int status) {
  const auto reason = view(http::obsolete_reason(static_cast<http::status>(status)));
  return fmt::format("HTTP/1.1 {} {}\r\n", status, reason);
}

}  // namespace

Connection::Connection(Tcp::socket socket, ConnectionShared& shared)
    : socket_(std::move(socket)), timer_(socket_.get_executor()), shared_(shared), begun_(Clock::now()) {
  shared_.all.insert(this);
  ++shared_.api.metrics().connections;
}

Connection::~Connection() {
  close();
  shared_.all.erase(this);
  --shared_.api.metrics().connections;
}

void Connection::start() {
  Error ignored;
  const auto remote = socket_.remote_endpoint(ignored);
  if (!ignored) peer_ = remote.address().to_string();
  (void)socket_.non_blocking(true, ignored);
  (void)socket_.set_option(Tcp::no_delay(true), ignored);
  (void)socket_.set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
  set_deadline(shared_.options.head_time);
  wait_readable();
}

void Connection::close() noexcept {
  if (phase_ == Phase::closed) return;
  const bool unanswered = phase_ == Phase::busy || phase_ == Phase::streaming;
  phase_ = Phase::closed;
  shared_.buffered -= std::exchange(held_, 0);
  Error ignored;
  (void)socket_.close(ignored);
  try {
    timer_.cancel();
    if (unanswered) {
      status_ = 499;  // in the log alone: the client closed
      log({.error = "client gone"});
    }
  } catch (...) {
    status_ = 0;  // not logged: memory for the line is missing
  }
  if (exchange_ != nullptr) std::exchange(exchange_, nullptr)->cancel();
}

// ---- in

void Connection::wait_readable() {
  const bool full = phase_ != Phase::lingering && in_.size() >= kMaxReadAhead;
  if (phase_ == Phase::closed || reading_ || end_of_input_ || full) return;
  reading_ = true;
  socket_.async_wait(Tcp::socket::wait_read, [self = shared_from_this()](const Error& error) {
    self->reading_ = false;
    if (!error) self->on_readable();
  });
}

void Connection::on_readable() {
  if (phase_ == Phase::closed) return;
  Error error;
  const size_t count = socket_.read_some(asio::buffer(shared_.input), error);
  if (error == asio::error::would_block || error == asio::error::try_again) return wait_readable();
  if (error) return on_end_of_input();
  if (phase_ != Phase::lingering) {
    in_.append(shared_.input.data(), count);
    if (phase_ == Phase::idle || phase_ == Phase::head || phase_ == Phase::body) parse();
    count_buffered();
  }
  wait_readable();
}

void Connection::on_end_of_input() {
  end_of_input_ = true;
  // What is being sent may still arrive: some clients close their side when they have sent their last request.
  if (phase_ != Phase::flushing) close();
}

void Connection::count_buffered() {
  if (phase_ == Phase::closed) return;
  const uint64_t now = in_.size() + (parser_ != nullptr ? parser_->get().body().size() : 0);
  shared_.buffered += now - held_;
  held_ = now;
  if (phase_ == Phase::body && shared_.buffered > shared_.options.max_buffered_bytes) {
    reject(ApiError(503, "the server has no room for more requests"));
  }
}

void Connection::parse() {
  while (parse_some()) {
  }
}

// False when more input is needed, or a request is there.
bool Connection::parse_some() {
  if (phase_ == Phase::idle) {
    // Empty lines between requests.
    in_.erase(0, std::min(in_.find_first_not_of("\r\n"), in_.size()));
    if (in_.empty()) return false;
    phase_ = Phase::head;
    begun_ = Clock::now();
    head_ = {};
    head_.id = shared_.api.new_id();
    parser_ = std::make_unique<Parser>();
    parser_->header_limit(kMaxHeadBytes);
    parser_->body_limit(shared_.options.max_body_bytes);
    parser_->eager(true);
    set_deadline(shared_.options.head_time);
  }
  Error error;
  const size_t used = parser_->put(asio::buffer(in_), error);
  in_.erase(0, used);
  if (error && error != http::error::need_more) {
    reject(error);
    return false;
  }
  if (phase_ == Phase::head && parser_->is_header_done() && !on_head()) return false;
  if (parser_->is_done()) {
    on_request();
    return false;
  }
  return used > 0 && !in_.empty();
}

void Connection::read_head() {
  const auto& message = parser_->get();
  head_.method = view(message.method_string());
  const std::string_view target = view(message.target());
  head_.path = target.substr(0, target.find('?'));
  head_.host = view(message[http::field::host]);
  head_.origin = view(message[http::field::origin]);
  const std::string_view authorization = view(message[http::field::authorization]);
  constexpr std::string_view kBearer = "Bearer ";
  if (authorization.starts_with(kBearer)) {
    head_.credential = trim(authorization.substr(kBearer.size()));
  } else {
    head_.credential = trim(view(message["X-Api-Key"]));
  }
  if (head_.credential.size() > kMaxKeyBytes) head_.credential.resize(kMaxKeyBytes);
}

void Connection::check_head() {
  const auto& message = parser_->get();
  const auto fields = static_cast<size_t>(std::distance(message.begin(), message.end()));
  if (fields > kMaxHeadFields)
    throw ApiError(431, fmt::format("the request has more than {} header fields", kMaxHeadFields));
  const size_t hosts = message.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && message.version() >= 11)) throw ApiError(400, "a request has one Host field");
  const size_t codings = message.count(http::field::transfer_encoding);
  if (codings > 0 && (codings > 1 || message.count(http::field::content_length) > 0 || message.version() < 11 ||
                      !boost::beast::iequals(message[http::field::transfer_encoding], "chunked"))) {
    throw ApiError(400, "Transfer-Encoding can only be chunked, in HTTP/1.1 and without Content-Length");
  }
  if (message.count(http::field::content_encoding) > 0 &&
      !boost::beast::iequals(message[http::field::content_encoding], "identity")) {
    throw ApiError(415, "bodies with a Content-Encoding are not read here; send it as it is");
  }
  if (message.count(http::field::upgrade) > 0 && view(message[http::field::upgrade]) == "websocket") {
    throw ApiError(400, "there are no web sockets here");
  }
  if (message.count("X-Request-Timeout") > 0) {
    const std::string_view text = view(message["X-Request-Timeout"]);
    const double seconds = parse_double(text).value_or(0);
    if (!(seconds > 0 && seconds <= kMaxTimeoutSeconds)) {
      throw ApiError(400, fmt::format("X-Request-Timeout is a number of seconds, at most {}", kMaxTimeoutSeconds));
    }
    head_.timeout = std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1e3)));
  }
}

// False when the request was answered already.
bool Connection::on_head() {
  keep_alive_ = parser_->keep_alive() && !shared_.draining;
  chunked_ = parser_->get().version() >= 11;
  read_head();
  bool is_sound = false;
  try {
    check_head();
    is_sound = true;
    shared_.api.check(head_);
  } catch (const ApiError& error) {
    if (!is_sound) keep_alive_ = false;  // where its body ends may be a matter of opinion
    reject(error);
    return false;
  }
  phase_ = Phase::body;
  set_deadline(shared_.options.body_time);
  if (!parser_->is_done() && boost::beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
    send("HTTP/1.1 100 Continue\r\n\r\n");
  }
  return true;
}

void Connection::on_request() {
  phase_ = Phase::busy;
  if (head_.timeout.count() > 0) expiry_ = begun_ + head_.timeout;
  // The timer also keeps the connection while nothing is read or written.
  set_deadline(shared_.options.comment_time);
  std::string body = std::move(parser_->get().body());
  parser_->get().body().clear();
  auto exchange = shared_.api.handle(head_, std::move(body), shared_from_this());
  if (phase_ == Phase::busy || phase_ == Phase::streaming) exchange_ = std::move(exchange);
}

void Connection::reject(const Error& error) {
  keep_alive_ = false;
  reject(error_of(error));
}

void Connection::reject(const ApiError& error) {
  if (parser_ == nullptr || !parser_->is_done()) keep_alive_ = false;
  phase_ = Phase::busy;
  respond(error_response(error, error_form(head_.path)), {.error = error.what()});
}

// ---- out

void Connection::respond(HttpResponse response, const RequestNote& note) {
  if (phase_ != Phase::busy) return;
  exchange_ = nullptr;
  renew_deadline();
  status_ = response.status;
  if (shared_.draining) keep_alive_ = false;
  std::string head = status_line(response.status);
  fmt::format_to(std::back_inserter(head),
                 "Content-Type: {}\r\nContent-Length: {}\r\nX-Request-Id: {}\r\nConnection: {}\r\n",
                 response.content_type, response.body.size(), head_.id, keep_alive_ ? "keep-alive" : "close");
  for (const auto& [name, value] : response.headers)
    fmt::format_to(std::back_inserter(head), "{}: {}\r\n", name, value);
  head += "\r\n";
  answered_ = response.body.size();
  phase_ = Phase::flushing;
  log(note);
  if (head_.method != "HEAD") head += response.body;
  send(head);
}

void Connection::begin(std::string_view content_type) {
  if (phase_ != Phase::busy) return;
  phase_ = Phase::streaming;
  status_ = 200;
  answered_ = 0;
  comments_ = content_type == "text/event-stream";
  if (!chunked_) keep_alive_ = false;
  send(
      fmt::format("{}Content-Type: {}\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
                  "X-Request-Id: {}\r\n{}Connection: {}\r\n\r\n",
                  status_line(200), content_type, head_.id, chunked_ ? "Transfer-Encoding: chunked\r\n" : "",
                  keep_alive_ ? "keep-alive" : "close"));
}

void Connection::write(std::string_view text) {
  if (phase_ != Phase::streaming || text.empty()) return;
  if (out_.size() + sending_.size() - sent_ > shared_.options.max_unsent_bytes) return drop();
  answered_ += text.size();
  if (!chunked_) return send(text);
  send(fmt::format("{:x}\r\n{}\r\n", text.size(), text));
}

void Connection::end(const RequestNote& note) {
  if (phase_ != Phase::streaming) return;
  exchange_ = nullptr;
  renew_deadline();
  phase_ = Phase::flushing;
  log(note);
  send(chunked_ ? "0\r\n\r\n" : "");
}

void Connection::send(std::string_view text) {
  out_ += text;
  flush();
}

void Connection::flush() {
  if (phase_ == Phase::closed || writing_) return;
  if (out_.empty()) return on_flushed();
  sending_.swap(out_);
  out_.clear();
  sent_ = 0;
  writing_ = true;
  write_some();
}

void Connection::write_some() {
  if (phase_ != Phase::body) set_deadline(shared_.options.write_time);
  socket_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                           [self = shared_from_this()](const Error& error, size_t count) {
                             if (self->phase_ == Phase::closed) return;
                             if (error) return self->drop();
                             self->sent_ += count;
                             if (self->sent_ < self->sending_.size()) return self->write_some();
                             self->writing_ = false;
                             self->sending_ = {};
                             self->sent_ = 0;
                             self->flush();
                           });
}

void Connection::on_flushed() {
  if (phase_ == Phase::streaming) return set_deadline(shared_.options.comment_time);
  if (phase_ != Phase::flushing) return;
  if (!keep_alive_) return linger();
  phase_ = Phase::idle;
  parser_ = nullptr;
  set_deadline(shared_.options.idle_time);
  parse();
  count_buffered();
  if (end_of_input_ && phase_ != Phase::flushing) return close();
  wait_readable();
}

void Connection::linger() {
  if (end_of_input_) return close();
  phase_ = Phase::lingering;
  in_ = {};
  parser_ = nullptr;
  Error error;
  (void)socket_.shutdown(Tcp::socket::shutdown_send, error);
  if (error) return close();
  count_buffered();
  set_deadline(kLingerTime);
  wait_readable();
}

// The client does not read, or is gone.
void Connection::drop() {
  close();
}

// ---- time

void Connection::set_deadline(std::chrono::milliseconds from_now) {
  deadline_ = std::min(Clock::now() + from_now, expiry_);
  // A timer that rings too early finds the new deadline by itself.
  if (timer_waits_ && timer_.expiry() <= deadline_) return;
  timer_.expires_at(deadline_);
  wait_timer();
}

void Connection::wait_timer() {
  timer_waits_ = true;
  timer_.async_wait([self = shared_from_this()](const Error& error) {
    if (error || self->phase_ == Phase::closed) return;
    self->timer_waits_ = false;
    self->on_deadline();
  });
}

// The request has its answer: from now on only the client's reading is timed, of a write that is under way, too.
void Connection::renew_deadline() {
  expiry_ = Clock::time_point::max();
  set_deadline(shared_.options.write_time);
}

// Whether the request had no time left; its end comes from who works on it.
bool Connection::expire() {
  if (exchange_ == nullptr || Clock::now() < expiry_) return false;
  expiry_ = Clock::time_point::max();
  set_deadline(shared_.options.comment_time);
  std::exchange(exchange_, nullptr)->expire();
  return true;
}

void Connection::on_deadline() {
  if (Clock::now() < deadline_) {
    timer_.expires_at(deadline_);
    return wait_timer();
  }
  if (expire()) return;
  switch (phase_) {
    case Phase::head:
    case Phase::body:
      return reject(ApiError(408, "the request took too long to arrive"));
    case Phase::streaming:
      if (writing_) return drop();
      if (!comments_) return set_deadline(shared_.options.comment_time);
      return write(": working\n\n");
    case Phase::busy:
      return set_deadline(shared_.options.comment_time);
    default:
      return close();
  }
}

void Connection::log(const RequestNote& note) {
  ++shared_.api.metrics().answers[{std::string(Api::known_path(head_.path)), status_}];
  if (!shared_.options.log) return;
  const RequestLine line{.peer = peer_,
                         .method = head_.method,
                         .path = head_.path,
                         .status = status_,
                         .bytes = answered_,
                         .ms = std::chrono::duration<double, std::milli>(Clock::now() - begun_).count(),
                         .id = head_.id,
                         .key = head_.key,
                         .note = note};
  shared_.options.log(shared_.options.log_json ? json_line(line, unix_now()) : text_line(line));
}

}  // namespace inferno::serve
