#include "serve/request_log.h"

#include <fmt/core.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "serve/reply.h"

namespace inferno::serve {

std::string text_line(const RequestLine& line) {
  const RequestNote& note = line.note;
  std::string text =
      fmt::format("{} {} {} {} {}B {:.1f}ms {}", line.peer, line.method.empty() ? "-" : printable(line.method, 16),
                  line.path.empty() ? "-" : printable(line.path), line.status, line.bytes, line.ms, line.id);
  if (note.has_tokens) {
    text += fmt::format(
        " model={} prompt={} cached={} reuse_end={} new={} queue_ms={:.1f} first_ms={:.1f} decode_ms={:.1f}",
        note.model, note.prompt_tokens, note.reused_tokens, note.reuse_end, note.generated_tokens, note.queue_ms,
        note.first_token_ms, note.decode_ms);
  }
  return text;
}

std::string json_line(const RequestLine& line, int64_t unix_seconds) {
  const RequestNote& note = line.note;
  nlohmann::ordered_json body = {
      {"time", utc_time(unix_seconds)}, {"client", line.peer},   {"method", printable(line.method, 16)},
      {"path", printable(line.path)},   {"status", line.status}, {"bytes", line.bytes},
      {"ms", rounded(line.ms)},         {"id", line.id}};
  if (line.key != HttpHead::kNoKey) body["key"] = line.key;
  if (note.has_tokens) {
    body["model"] = note.model;
    body["prompt_tokens"] = note.prompt_tokens;
    body["reused_tokens"] = note.reused_tokens;
    body["reuse_end"] = note.reuse_end;
    body["generated_tokens"] = note.generated_tokens;
    body["queue_ms"] = rounded(note.queue_ms);
    body["first_token_ms"] = rounded(note.first_token_ms);
    body["decode_ms"] = rounded(note.decode_ms);
  }
  return dump(body);
}

std::string utc_time(int64_t unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace inferno::serve
