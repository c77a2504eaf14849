// Answers on their way to the client.
#include <boost/asio/buffer.hpp>
#include <new>
#include <utility>

#include "serve/connection.h"
#include "serve/request_log.h"

namespace inferno::serve {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kLingerTime{2000};

}  // namespace

void Connection::respond(HttpResponse response, const RequestNote& note) {
  if (phase_ != Phase::busy) return;
  exchange_ = nullptr;
  renew_deadline();
  status_ = response.status;
  if (shared_.draining) keep_alive_ = false;
  std::string head = status_line(response.status);
  if (!response.content_type.empty())
    fmt::format_to(std::back_inserter(head), "Content-Type: {}\r\n", response.content_type);
  fmt::format_to(std::back_inserter(head), "Content-Length: {}\r\n", response.body.size());
  fmt::format_to(std::back_inserter(head), "X-Request-Id: {}\r\nConnection: {}\r\n{}", head_.id,
                 keep_alive_ ? "keep-alive" : "close", cors_lines(head_));
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
                  "X-Request-Id: {}\r\n{}Connection: {}\r\n{}\r\n",
                  status_line(200), content_type, head_.id, chunked_ ? "Transfer-Encoding: chunked\r\n" : "",
                  keep_alive_ ? "keep-alive" : "close", cors_lines(head_)));
}

void Connection::write(std::string_view text) {
  if (phase_ != Phase::streaming || text.empty()) return;
  if (out_.size() + sending_.size() - sent_ > shared_.options.max_unsent_bytes) return drop();
  answered_ += text.size();
  if (!add(chunked_ ? fmt::format("{:x}\r\n{}\r\n", text.size(), text) : std::string(text))) drop();
}

void Connection::end(const RequestNote& note) {
  if (phase_ != Phase::streaming) return;
  exchange_ = nullptr;
  renew_deadline();
  phase_ = Phase::flushing;
  log(note);
  send(chunked_ ? "0\r\n\r\n" : "");
}

bool Connection::add(std::string_view text) {
  if (tls_ != nullptr) return tls_->send(text, out_);
  out_ += text;
  return true;
}

void Connection::send(std::string_view text) {
  if (!add(text)) return drop();
  flush();
}

// A few bytes that may be lost: nobody waits for them.
void Connection::send_now(std::string_view bytes) noexcept {
  Error ignored;
  if (!writing_ && !bytes.empty()) (void)socket_.write_some(asio::buffer(bytes.data(), bytes.size()), ignored);
}

// Says that nothing more comes, so that the client does not take the end for a cut.
void Connection::end_tls() noexcept try {
  if (tls_ == nullptr) return;
  std::string wire;
  tls_->end(wire);
  send_now(wire);
} catch (const std::bad_alloc&) {
  tls_ = nullptr;
}

void Connection::flush() {
  if (writing_) return;
  if (phase_ == Phase::streaming) write_what_fits();
  if (phase_ == Phase::closed) return;
  if (out_.empty()) return on_flushed();
  sending_.swap(out_);
  out_.clear();
  sent_ = 0;
  writing_ = true;
  write_some();
}

// The system takes a few tokens at once, almost always, and then no event need tell so. Only within a stream: after an
// answer the next request is read, which must not happen inside of this one.
void Connection::write_what_fits() {
  if (out_.empty()) return;
  Error error;
  const size_t count = socket_.write_some(asio::buffer(out_), error);
  if (error == asio::error::would_block || error == asio::error::try_again) return;
  if (error) return drop();
  out_.erase(0, count);
}

void Connection::write_some() {
  // Before there is a request, it is its arrival that is timed.
  const bool answers = phase_ == Phase::busy || phase_ == Phase::streaming || phase_ == Phase::flushing;
  if (answers) set_deadline(shared_.options.write_time);
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
  head_ = {};
  if (in_.empty()) in_ = {};  // thousands of idle connections keep no buffers
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
  end_tls();
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

// An answer does not depend on whether its line can be written.
void Connection::log(const RequestNote& note) noexcept try {
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
} catch (...) {
  ++shared_.api.metrics().lost_lines;
}

}  // namespace inferno::serve
