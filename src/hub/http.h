// HTTP GET over libcurl, for the hub: redirects by hand, so that the token reaches nobody else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace inferno::hub {

struct HttpRequest {
  std::string url;
  std::string token;        // sent as a bearer token to the origin of `url` alone
  uint64_t first_byte = 0;  // of a range to the end; 0: everything
  // The body of a success; returns false to break the transfer off. `from`: what the body starts at, 0 when the server
  // sent everything although a range was asked for.
  std::function<bool(std::span<const std::byte> bytes, uint64_t from)> on_body = {};
};

struct HttpResult {
  long status = 0;        // of the last reply
  bool complete = false;  // the whole body arrived
  std::string problem;    // one line, when it did not
};

// Follows at most 8 redirects, never from https to http. Failures of the network are in the result; an address that is
// none, or a redirect that is not allowed, is an Error.
[[nodiscard]] HttpResult http_get(const HttpRequest& request);

}  // namespace inferno::hub
