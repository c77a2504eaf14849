// Who may use the server.
//
// With keys, every request needs one but those for the page and for whether the server lives. Without, on a loopback
// address, requests must name a loopback host, and come from no page of another site: a page in the browser of somebody
// on this machine can send requests to 127.0.0.1, and by a name of its own that resolves to it read the answers. Pages
// of other sites that are named may use it, and their browsers are told so (CORS); none is unless it was named.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http.h"

namespace inferno::serve {

inline constexpr size_t kMaxKeyBytes = 512;

// One key per line; empty lines and those that begin with # do not count. A key is 1 to kMaxKeyBytes printable ASCII
// characters without spaces; anything else is an Error, which does not show it.
[[nodiscard]] std::vector<std::string> parse_keys(std::string_view text);

// In a time that depends on the lengths alone.
[[nodiscard]] bool same_key(std::string_view given, std::string_view key);

// "127.0.0.1", "localhost:8080", "[::1]:80"
[[nodiscard]] bool is_loopback_host(std::string_view host);

// The header lines of an answer that a page of the allowed origin may read; none where there is no such page.
[[nodiscard]] std::string cors_lines(const HttpHead& head);

class Access {
 public:
  // local: only requests to a loopback host, when there are no keys. origins: "https://host[:port]", "localhost" for
  // those of this machine at any port, or "*" for all; anything else is an Error.
  Access(std::vector<std::string> keys, bool local, std::vector<std::string> origins = {});

  // Browsers are told whose pages may use the server.
  [[nodiscard]] bool has_origins() const { return !origins_.empty(); }
  // Empty unless the request comes from a page of an origin that was named; "*" where all are.
  [[nodiscard]] std::string allowed_origin(const HttpHead& head) const;
  // Which key the request came with, HttpHead::kNoKey where none is needed; an ApiError when it is not allowed.
  [[nodiscard]] size_t check(const HttpHead& head, bool is_open) const;

 private:
  std::vector<std::string> keys_;
  bool local_;
  std::vector<std::string> origins_;
};

}  // namespace inferno::serve
