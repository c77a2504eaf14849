// What a client sends. The first byte says what the rest is: the body of a request in one of the APIs, or the bytes of
// HTTP requests that come in pieces. It is read, or is an ApiError of one line whose answer is JSON.
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "serve/api_error.h"
#include "serve/completion_request.h"
#include "serve/json_fields.h"
#include "serve/request_parser.h"

namespace {

using namespace inferno::serve;

constexpr Dialect kDialects[] = {Dialect::openai_text, Dialect::openai_chat,     Dialect::responses,  Dialect::native,
                                 Dialect::anthropic,   Dialect::ollama_generate, Dialect::ollama_chat};
constexpr uint64_t kMaxBody = 1 << 16;

[[noreturn]] void found(const char* what, std::string_view text) {
  std::fprintf(stderr, "%s: %.*s\n", what, static_cast<int>(text.size()), text.data());
  std::abort();
}

void read_body(std::string_view text, Dialect dialect) {
  const Json body = parse_object(text);
  (void)wants_stream(body, dialect);
  const CompletionLimits limits{.context = 4096};
  const CompletionRequest request = parse_completion(body, text, dialect, limits, 1);
  if (request.choices() > limits.choices) found("more choices than the limit", text);
}

// Pieces of 1 to 16 bytes, by the byte that each begins with.
void read_http(std::string_view text) {
  std::string waiting;
  RequestParser parser(kMaxBody);
  bool has_head = false;
  while (!text.empty() && !parser.is_done()) {
    const size_t piece = std::min<size_t>(text.size(), 1 + (static_cast<unsigned char>(text.front()) & 15));
    waiting += text.substr(0, piece);
    text.remove_prefix(piece);
    for (size_t taken = 1; taken > 0 && !waiting.empty() && !parser.is_done();) {
      taken = parser.put(waiting);
      if (taken > waiting.size()) found("more was taken than there was", waiting);
      waiting.erase(0, taken);
      if (has_head || !parser.has_head()) continue;
      has_head = true;
      HttpHead head;
      parser.read_head(head);
      parser.check_head(head);
      (void)parser.keep_alive();
      (void)parser.awaits_continue();
    }
  }
  if (parser.body_bytes() > kMaxBody) found("a body beyond the limit", text);
  if (parser.is_done()) (void)parser.take_body();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t kind = data[0] % (std::size(kDialects) + 1);
  try {
    if (kind == std::size(kDialects)) {
      read_http(text);
    } else {
      read_body(text, kDialects[kind]);
    }
  } catch (const ApiError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos)
      found("an error of several lines", error.what());
    if (error.status() < 400 || error.status() == 500) found("an error that is the server's", error.what());
    (void)Json::parse(error_body(error));
  }
  return 0;
}
