// How code inside inferno reports failure: fail() for what the user can cause, CHECK for what only a bug can.
#pragma once

#include <fmt/core.h>

#include <utility>

#include "inferno/error.h"

namespace inferno {

// Throws Error with exit code 1. The message is one line: what was wrong, where, what to do. It names options in
// backquotes as the option structs do, `context`, and never by a flag: the command line puts its own names there.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// The same for a wrong request (flag, name, value): exit code 2.
template <typename... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), Error::Kind::usage);
}

// Prints "file:line: CHECK(condition) failed" on stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition) noexcept;

}  // namespace inferno

// An invariant of the program itself; stays in release builds. Never used on input.
#define INFERNO_CHECK(condition) \
  (static_cast<bool>(condition) ? void() : ::inferno::check_failed(__FILE__, __LINE__, #condition))
