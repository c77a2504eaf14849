#include "serve/request_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http.hpp>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "serve/access.h"
#include "serve/api_error.h"

namespace inferno::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using ErrorCode = boost::beast::error_code;

constexpr uint32_t kMaxHeadBytes = 16 * 1024;
constexpr size_t kMaxHeadFields = 128;
constexpr double kMaxTimeoutSeconds = 86'400;

std::string_view view(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

ApiError error_of(const ErrorCode& error) {
  if (error == http::error::header_limit)
    return {431, fmt::format("the head of the request is longer than {} bytes", kMaxHeadBytes)};
  if (error == http::error::body_limit) return {413, "the body of the request is too long"};
  if (error == http::error::bad_version) return {505, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
  return {400, fmt::format("this is not HTTP: {}", error.message())};
}

// A body that grows with what arrives, not with what was announced.
struct GrowingBody {
  using value_type = std::string;

  class reader {  // NOLINT(readability-identifier-naming): Beast's name
   public:
    template <bool isRequest, class Fields>
    reader(http::header<isRequest, Fields>& /*head*/, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>& /*length*/, ErrorCode& ec) { ec = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, ErrorCode& ec) {
      ec = {};
      size_t total = 0;
      for (auto it = asio::buffer_sequence_begin(buffers); it != asio::buffer_sequence_end(buffers); ++it) {
        const asio::const_buffer piece = *it;
        body_.append(static_cast<const char*>(piece.data()), piece.size());
        total += piece.size();
      }
      return total;
    }
    void finish(ErrorCode& ec) { ec = {}; }

   private:
    value_type& body_;
  };
};

// A header field that goes on in the next line: proxies read it in different ways.
bool has_folded_line(std::string_view head) {
  head = head.substr(0, head.find("\r\n\r\n"));
  return head.find("\r\n ") != std::string_view::npos || head.find("\r\n\t") != std::string_view::npos;
}

}  // namespace

struct RequestParser::Parts {
  http::request_parser<GrowingBody> parser;
  bool folded = false;
};

RequestParser::RequestParser(uint64_t max_body_bytes) : parts_(std::make_unique<Parts>()) {
  parts_->parser.header_limit(kMaxHeadBytes);
  parts_->parser.body_limit(max_body_bytes);
  parts_->parser.eager(true);
}

RequestParser::~RequestParser() = default;

size_t RequestParser::put(std::string_view text) {
  const bool had_head = has_head();
  ErrorCode error;
  const size_t used = parts_->parser.put(asio::buffer(text.data(), text.size()), error);
  if (error && error != http::error::need_more) throw error_of(error);
  // The parser takes a head whole or not at all.
  if (!had_head && has_head()) parts_->folded = has_folded_line(text);
  return used;
}

bool RequestParser::has_head() const {
  return parts_->parser.is_header_done();
}

bool RequestParser::is_done() const {
  return parts_->parser.is_done();
}

bool RequestParser::keep_alive() const {
  return parts_->parser.keep_alive();
}

bool RequestParser::knows_chunks() const {
  return parts_->parser.get().version() >= 11;
}

bool RequestParser::awaits_continue() const {
  return !is_done() && boost::beast::iequals(parts_->parser.get()[http::field::expect], "100-continue");
}

size_t RequestParser::body_bytes() const {
  return parts_->parser.get().body().size();
}

std::string RequestParser::take_body() {
  return std::exchange(parts_->parser.get().body(), {});
}

void RequestParser::read_head(HttpHead& head) const {
  const auto& message = parts_->parser.get();
  head.method = view(message.method_string());
  const std::string_view target = view(message.target());
  const size_t path_end = std::min(target.find('?'), target.size());
  head.path = target.substr(0, path_end);
  head.query = target.substr(std::min(path_end + 1, target.size()));
  head.host = view(message[http::field::host]);
  head.origin = view(message[http::field::origin]);
  head.asked_method = view(message[http::field::access_control_request_method]);
  head.asked_fields = view(message[http::field::access_control_request_headers]);
  const auto authorization = message[http::field::authorization];
  constexpr size_t kScheme = 7;
  if (boost::beast::iequals(authorization.substr(0, kScheme), "Bearer ")) {
    head.credential = trim(view(authorization.substr(kScheme)));
  } else {
    head.credential = trim(view(message["X-Api-Key"]));
  }
  if (head.credential.size() > kMaxKeyBytes) head.credential.clear();
}

void RequestParser::check_head(HttpHead& head) const {
  const auto& message = parts_->parser.get();
  const auto fields = static_cast<size_t>(std::distance(message.begin(), message.end()));
  if (fields > kMaxHeadFields)
    throw ApiError(431, fmt::format("the request has more than {} header fields", kMaxHeadFields));
  if (parts_->folded) throw ApiError(400, "a header field that goes on in the next line is not read here");
  const size_t hosts = message.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && message.version() >= 11)) throw ApiError(400, "a request has one Host field");
  // "4, 4" is a list of lengths to some.
  const std::string_view length = view(message[http::field::content_length]);
  if (message.count(http::field::content_length) > 1 ||
      length.find_first_not_of("0123456789") != std::string_view::npos) {
    throw ApiError(400, "a request has one Content-Length, a number");
  }
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
    head.timeout = std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1e3)));
  }
}

std::string status_line(int status) {
  const auto reason = view(http::obsolete_reason(static_cast<http::status>(status)));
  return fmt::format("HTTP/1.1 {} {}\r\n", status, reason);
}

}  // namespace inferno::serve
