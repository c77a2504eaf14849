// Small text helpers shared by errors, tables and options.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace inferno {

[[nodiscard]] std::string_view trim(std::string_view text);
// Text from a file or a prompt, escaped for a terminal: control bytes and invalid UTF-8 become \xNN, and at most
// `limit` bytes are kept (then "...").
[[nodiscard]] std::string printable(std::string_view text, size_t limit = 80);
// Length of the valid UTF-8 sequence at the front of text, or 0 when there is none (overlong forms, surrogates and
// values past U+10FFFF are not valid).
[[nodiscard]] size_t utf8_sequence_length(std::string_view text);
[[nodiscard]] bool is_valid_utf8(std::string_view text);
// A whole decimal integer, nothing before or after it; nullopt otherwise or when it does not fit.
[[nodiscard]] std::optional<int64_t> parse_int(std::string_view text);
// A decimal number such as -1.5e3, nothing before or after it; nullopt otherwise or when it does not fit. As written in
// programs, whatever the locale. (Not every libc++ has std::from_chars of floats.)
[[nodiscard]] std::optional<double> parse_double(std::string_view text);
// "12.3 MiB"
[[nodiscard]] std::string format_bytes(uint64_t bytes);
// The candidate with the smallest edit distance to `word`, for "did you mean"; empty when none is close.
[[nodiscard]] std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace inferno
