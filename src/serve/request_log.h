// A line per request: for people, or JSON for programs. Neither has prompts, answers or keys.
#pragma once

#include <cstdint>
#include <string>

#include "serve/http.h"

namespace inferno::serve {

struct RequestLine {
  std::string peer = {};
  std::string method = {};
  std::string path = {};
  int status = 0;
  uint64_t bytes = 0;  // of the answer's body
  double ms = 0;
  std::string id = {};
  size_t key = HttpHead::kNoKey;
  RequestNote note = {};
};

// "127.0.0.1 POST /v1/completions 200 512B 31.2ms ID prompt=12 cached=8 new=20 first_ms=9.1"
[[nodiscard]] std::string text_line(const RequestLine& line);
// {"time", "client", "method", "path", "status", ...}
[[nodiscard]] std::string json_line(const RequestLine& line, int64_t unix_seconds);

// "2026-11-16T08:00:00Z"
[[nodiscard]] std::string utc_time(int64_t unix_seconds);
[[nodiscard]] int64_t unix_now();

}  // namespace inferno::serve
