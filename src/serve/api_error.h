// A request that is answered with an error, in the form of the API that was asked.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "inferno/error.h"
#include "serve/dialect.h"
#include "serve/http.h"

namespace inferno::serve {

class ApiError : public Error {
 public:
  ApiError(int status, const std::string& message, std::string param = {}, std::string code = {})
      : Error(message, Kind::usage), status_(status), param_(std::move(param)), code_(std::move(code)) {}

  [[nodiscard]] int status() const noexcept { return status_; }
  [[nodiscard]] const std::string& param() const noexcept { return param_; }  // the field; empty: none
  [[nodiscard]] const std::string& code() const noexcept { return code_; }    // empty: none

 private:
  int status_;
  std::string param_;
  std::string code_;
};

// 400 about one field.
template <typename... Args>
[[noreturn]] void fail_field(const std::string& field, fmt::format_string<Args...> format, Args&&... args) {
  throw ApiError(400, fmt::format("`{}` {}", field, fmt::format(format, std::forward<Args>(args)...)), field);
}

// 501 about one field: what a later version brings. An answer that ignored it would be a wrong one.
[[noreturn]] inline void fail_unsupported(const std::string& field, std::string_view what = {}) {
  throw ApiError(501, fmt::format("`{}` {}is not supported yet", field, what), field, "not_supported");
}

// 504: X-Request-Timeout.
[[nodiscard]] inline ApiError timeout_error() {
  return {504, "the time that X-Request-Timeout allows is over", {}, "request_timeout"};
}

// What is being handled, as an error of the request.
[[nodiscard]] ApiError current_error();

// OpenAI: {"error": {"message", "type", "param", "code"}}; Anthropic: {"type": "error", "error": {"type", "message"}};
// Ollama: {"error": "message"}.
[[nodiscard]] std::string error_body(const ApiError& error, ErrorForm form = ErrorForm::openai);
// With the headers that belong to the status.
[[nodiscard]] HttpResponse error_response(const ApiError& error, ErrorForm form = ErrorForm::openai);

}  // namespace inferno::serve
