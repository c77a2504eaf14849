// How characters beyond ASCII are written in UTF-8, by their first byte.
#pragma once

#include <array>
#include <cstdint>

namespace inferno::grammar {

// A first byte in [first, last] is followed by one in [low, high], then by more - 1 others in [0x80, 0xBF].
struct Utf8Lead {
  uint8_t first, last, low, high;
  int more;
};
inline constexpr std::array<Utf8Lead, 8> kUtf8Leads = {{{0xC2, 0xDF, 0x80, 0xBF, 1},
                                                        {0xE0, 0xE0, 0xA0, 0xBF, 2},
                                                        {0xE1, 0xEC, 0x80, 0xBF, 2},
                                                        {0xED, 0xED, 0x80, 0x9F, 2},
                                                        {0xEE, 0xEF, 0x80, 0xBF, 2},
                                                        {0xF0, 0xF0, 0x90, 0xBF, 3},
                                                        {0xF1, 0xF3, 0x80, 0xBF, 3},
                                                        {0xF4, 0xF4, 0x80, 0x8F, 3}}};

}  // namespace inferno::grammar
