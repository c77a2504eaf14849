// Reads one HTTP request out of bytes: Boost.Beast's parser, and limits of our own. Where the end of a request could be
// a matter of opinion between this server and a proxy before it, the request is refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "serve/http.h"

namespace inferno::serve {

class RequestParser {
 public:
  explicit RequestParser(uint64_t max_body_bytes);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  // Takes as much of the text as it can and says how much that was; an ApiError when this is no request. What it left
  // has to come again, with more after it.
  [[nodiscard]] size_t put(std::string_view text);
  [[nodiscard]] bool has_head() const;
  [[nodiscard]] bool is_done() const;

  // Once the head is there.
  void read_head(HttpHead& head) const;
  // An ApiError for a head that is not sound; sets the timeout.
  void check_head(HttpHead& head) const;
  [[nodiscard]] bool keep_alive() const;
  [[nodiscard]] bool knows_chunks() const;  // HTTP/1.1
  // The client sends its body when it is told to.
  [[nodiscard]] bool awaits_continue() const;

  [[nodiscard]] size_t body_bytes() const;
  [[nodiscard]] std::string take_body();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// "HTTP/1.1 200 OK\r\n"
[[nodiscard]] std::string status_line(int status);

}  // namespace inferno::serve
