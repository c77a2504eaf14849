// What Python's string methods do, on texts that keep their origin.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "template/text.h"

namespace inferno::jinja {

enum class Side : uint8_t { both, left, right };
// Without the characters of `chars` (white space when not given) at its ends.
[[nodiscard]] Text strip(const Text& text, std::optional<std::string_view> chars, Side side);
[[nodiscard]] Text to_upper(const Text& text);
[[nodiscard]] Text to_lower(const Text& text);
[[nodiscard]] Text to_swapped(const Text& text);
[[nodiscard]] Text to_capitalized(const Text& text);
[[nodiscard]] Text to_title(const Text& text);
// At most `limit` times; all when it is negative.
[[nodiscard]] Text replace(const Text& text, std::string_view old, const Text& fresh, int64_t limit);
// find() that takes linear time for any part.
[[nodiscard]] size_t find_part(std::string_view text, std::string_view part, size_t from = 0);
[[nodiscard]] size_t count_matches(std::string_view text, std::string_view part);
[[nodiscard]] std::vector<Text> split(const Text& text, std::optional<std::string_view> separator, int64_t limit);
[[nodiscard]] std::vector<Text> split_from_right(const Text& text, std::optional<std::string_view> separator,
                                                 int64_t limit);
[[nodiscard]] std::vector<Text> split_lines(const Text& text, bool keep_ends);

}  // namespace inferno::jinja
