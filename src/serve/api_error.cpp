#include "serve/api_error.h"

#include <exception>
#include <new>
#include <nlohmann/json.hpp>

namespace inferno::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

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

std::string_view anthropic_type_of(int status) {
  switch (status) {
    case 413:
      return "request_too_large";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : type_of(status);
  }
}

OrderedJson body_of(const ApiError& error, ErrorForm form) {
  const auto or_null = [](const std::string& text) { return text.empty() ? OrderedJson() : OrderedJson(text); };
  switch (form) {
    case ErrorForm::anthropic:
      return {{"type", "error"}, {"error", {{"type", anthropic_type_of(error.status())}, {"message", error.what()}}}};
    case ErrorForm::ollama:
      return {{"error", error.what()}};
    case ErrorForm::openai:
      break;
  }
  return {{"error",
           {{"message", error.what()},
            {"type", type_of(error.status())},
            {"param", or_null(error.param())},
            {"code", or_null(error.code())}}}};
}

// Seconds after which a client that was turned away may come again.
constexpr const char* kRetryAfter = "1";

}  // namespace

std::string error_body(const ApiError& error, ErrorForm form) {
  return body_of(error, form).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

HttpResponse error_response(const ApiError& error, ErrorForm form) {
  HttpResponse response{.status = error.status(), .body = error_body(error, form) + "\n"};
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status() == 405) response.headers.emplace_back("Allow", error.code() == "use_post" ? "POST" : "GET, HEAD");
  if (error.status() == 429 || error.status() == 503) response.headers.emplace_back("Retry-After", kRetryAfter);
  return response;
}

ApiError current_error() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const Error& error) {
    return {400, error.what()};
  } catch (const std::bad_alloc&) {
    return {503, "the server has no memory for this request"};
  } catch (const std::exception& error) {
    return {500, error.what()};
  } catch (...) {
    return {500, "the server failed"};
  }
}

}  // namespace inferno::serve
