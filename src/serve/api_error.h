// A request that is answered with an error, in OpenAI's form.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "inferno/error.h"
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

// {"error": {"message", "type", "param", "code"}}
[[nodiscard]] std::string error_body(const ApiError& error);
// With the headers that belong to the status.
[[nodiscard]] HttpResponse error_response(const ApiError& error);

}  // namespace inferno::serve
