// JSON from strangers within limits, found before anything of it is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace inferno {

struct JsonLimits {
  size_t depth;               // of nested arrays and objects
  size_t values;              // in all, names of members not counted
  size_t members = SIZE_MAX;  // of one object: an ordered tree looks through all of them for each
};

// What is wrong with the text, as words that follow its name: "is not valid JSON (at byte 7)". Empty: nothing.
// Json::parse() with a callback could find it on the way, but looks through an array again after each of its objects.
[[nodiscard]] std::string json_fault(std::string_view text, const JsonLimits& limits);

}  // namespace inferno
