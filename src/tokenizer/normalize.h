// Unicode normalization forms C and D.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace inferno {

// `text` must be valid UTF-8. O(n log n) for any input; text without characters past U+02FF is returned unchanged.
[[nodiscard]] std::string normalize_nfc(std::string_view text);
// Replaces `characters` by those of form D. `text` must be valid UTF-8; O(n log n).
void decompose_nfd(std::string_view text, std::vector<int32_t>& characters);

}  // namespace inferno
