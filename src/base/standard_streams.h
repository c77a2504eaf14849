// Standard streams that may be missing or broken. Messages on stderr are a courtesy: whoever does not read them, or
// cannot store them, must not lose the work they are about.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace inferno {

// A program calls it first: descriptors 0 to 2 that are closed become /dev/null, so that no file opened later gets
// their numbers, and the messages. Reading from such an input and writing to such an output still fail.
void open_standard_streams() noexcept;

// Writes what can be written; nobody is left to tell when it cannot.
void write_stderr(std::string_view text) noexcept;

template <typename... Args>
void print_stderr(fmt::format_string<Args...> format, Args&&... args) {
  write_stderr(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace inferno
