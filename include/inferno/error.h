// The one exception type of inferno.
//
// Every failure a user can cause or meet (a file, a configuration, a request, memory) is thrown as Error. Its message
// is one line that says what was wrong, where, and what to do. Programmer errors are not Errors: they are CHECKs.
#pragma once

#include <stdexcept>
#include <string>

#if defined(__GNUC__)
#define INFERNO_API __attribute__((visibility("default")))
#else
#define INFERNO_API
#endif

namespace inferno {

class INFERNO_API Error : public std::runtime_error {
 public:
  enum class Kind {
    failed,  // the request was fine, carrying it out was not: exit code 1
    usage,   // the request itself was wrong: exit code 2
  };

  explicit Error(const std::string& message, Kind kind = Kind::failed) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

}  // namespace inferno
