// Unicode normalization form C.
#pragma once

#include <string>
#include <string_view>

namespace inferno {

// `text` must be valid UTF-8. O(n log n) for any input; text without characters past U+02FF is returned unchanged.
[[nodiscard]] std::string normalize_nfc(std::string_view text);

}  // namespace inferno
