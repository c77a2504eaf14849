#include "serve/api_error.h"

#include <nlohmann/json.hpp>

namespace inferno::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string_view type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

// Seconds after which a client that was turned away may come again.
constexpr const char* kRetryAfter = "1";

}  // namespace

std::string error_body(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const Json body = {{"error",
                      {{"message", error.what()},
                       {"type", type_of(error.status())},
                       {"param", or_null(error.param())},
                       {"code", or_null(error.code())}}}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{.status = error.status(), .body = error_body(error) + "\n"};
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status() == 405) response.headers.emplace_back("Allow", error.code() == "use_post" ? "POST" : "GET, HEAD");
  if (error.status() == 429 || error.status() == 503) response.headers.emplace_back("Retry-After", kRetryAfter);
  return response;
}

}  // namespace inferno::serve
