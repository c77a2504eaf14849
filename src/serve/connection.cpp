#include "serve/connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <utility>

namespace inferno::serve {
namespace {

namespace asio = boost::asio;

// Read ahead while a request is being answered; then the client waits.
constexpr size_t kMaxReadAhead = 64 * 1024;
// Of the system, for a client that does not read: it would take megabytes for each.
constexpr int kSendBufferBytes = 128 * 1024;

}  // namespace

Connection::Connection(Tcp::socket socket, ConnectionShared& shared)
    : socket_(std::move(socket)), timer_(socket_.get_executor()), shared_(shared), begun_(Clock::now()) {
  if (shared_.tls != nullptr) tls_ = std::make_unique<TlsSession>(*shared_.tls);
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
  if (phase_ == Phase::idle) end_tls();
  const bool unanswered = phase_ == Phase::busy || phase_ == Phase::streaming;
  phase_ = Phase::closed;
  shared_.buffered -= std::exchange(held_, 0);
  Error ignored;
  (void)socket_.close(ignored);
  try {
    timer_.cancel();
  } catch (...) {
    deadline_ = Clock::time_point::max();  // it rings once more and finds nothing to do
  }
  if (unanswered) {
    status_ = 499;  // in the log alone: the client closed
    log({.error = "client gone"});
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
  if (phase_ != Phase::lingering) receive({shared_.input.data(), count});
  wait_readable();
}

void Connection::receive(std::string_view bytes) {
  bool more = true;
  if (tls_ == nullptr) {
    in_.append(bytes);
  } else {
    more = decrypt(bytes);
  }
  if (phase_ == Phase::idle || phase_ == Phase::head || phase_ == Phase::body) parse();
  count_buffered();
  if (!more && phase_ != Phase::closed) on_end_of_input();
}

// False when the client sends no more.
bool Connection::decrypt(std::string_view bytes) {
  if (!heard_ && is_plain_http(bytes.front())) {
    tls_ = nullptr;
    head_.id = shared_.api.new_id();
    keep_alive_ = false;
    reject(ApiError(400, "this port speaks TLS; begin the address with https://"));
    return true;
  }
  heard_ = true;
  std::string wire;
  const TlsSession::State state = tls_->receive(bytes, in_, wire);
  if (state == TlsSession::State::failed) {
    send_now(wire);
    tls_ = nullptr;
    close();
    return true;
  }
  if (!wire.empty()) {
    out_ += wire;
    flush();
  }
  return state == TlsSession::State::open;
}

void Connection::on_end_of_input() {
  end_of_input_ = true;
  // What is being sent may still arrive: some clients close their side when they have sent their last request.
  if (phase_ != Phase::flushing) close();
}

void Connection::count_buffered() {
  if (phase_ == Phase::closed) return;
  const uint64_t now = in_.size() + (parser_ != nullptr ? parser_->body_bytes() : 0);
  shared_.buffered += now - held_;
  held_ = now;
  const uint64_t all = shared_.buffered + shared_.api.waiting_bytes();
  if (phase_ == Phase::body && all > shared_.options.max_buffered_bytes) {
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
    parser_ = std::make_unique<RequestParser>(shared_.options.max_body_bytes);
    set_deadline(shared_.options.head_time);
  }
  size_t used = 0;
  try {
    used = parser_->put(in_);
  } catch (const ApiError& error) {
    keep_alive_ = false;
    reject(error);
    return false;
  }
  in_.erase(0, used);
  if (phase_ == Phase::head && parser_->has_head() && !on_head()) return false;
  if (parser_->is_done()) {
    on_request();
    return false;
  }
  return used > 0 && !in_.empty();
}

// False when the request was answered already.
bool Connection::on_head() {
  keep_alive_ = parser_->keep_alive() && !shared_.draining;
  chunked_ = parser_->knows_chunks();
  parser_->read_head(head_);
  bool is_sound = false;
  try {
    parser_->check_head(head_);
    is_sound = true;
    shared_.api.check(head_);
  } catch (const ApiError& error) {
    if (!is_sound) keep_alive_ = false;  // where its body ends may be a matter of opinion
    reject(error);
    return false;
  }
  phase_ = Phase::body;
  set_deadline(shared_.options.body_time);
  if (parser_->awaits_continue()) send("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

void Connection::on_request() {
  phase_ = Phase::busy;
  if (head_.timeout.count() > 0) expiry_ = begun_ + head_.timeout;
  // The timer also keeps the connection while nothing is read or written.
  set_deadline(shared_.options.comment_time);
  auto exchange = shared_.api.handle(head_, parser_->take_body(), shared_from_this());
  if (phase_ == Phase::busy || phase_ == Phase::streaming) exchange_ = std::move(exchange);
}

void Connection::reject(const ApiError& error) {
  if (parser_ == nullptr || !parser_->is_done()) keep_alive_ = false;
  phase_ = Phase::busy;
  respond(error_response(error, error_form(head_.path)), {.error = error.what()});
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
  if (Clock::now() < expiry_) return false;
  expiry_ = Clock::time_point::max();
  if (exchange_ == nullptr) return false;
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
      write(": working\n\n");
      return flush();
    case Phase::busy:
      set_deadline(shared_.options.comment_time);
      if (exchange_ != nullptr) exchange_->on_silence();
      return;
    default:
      return close();
  }
}

}  // namespace inferno::serve
