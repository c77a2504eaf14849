#include "quant/k_scales.h"

namespace inferno {

void unpack_k_scales(const uint8_t* packed, uint8_t* scales, uint8_t* minimums) noexcept {
  for (int j = 0; j < 4; ++j) {
    scales[j] = packed[j] & 63;
    minimums[j] = packed[j + 4] & 63;
    scales[j + 4] = static_cast<uint8_t>((packed[j + 8] & 15) | (packed[j] >> 6 << 4));
    minimums[j + 4] = static_cast<uint8_t>((packed[j + 8] >> 4) | (packed[j + 4] >> 6 << 4));
  }
}

void pack_k_scales(const uint8_t* scales, const uint8_t* minimums, uint8_t* packed) noexcept {
  for (int j = 0; j < 4; ++j) {
    packed[j] = static_cast<uint8_t>(scales[j] | (scales[j + 4] >> 4 << 6));
    packed[j + 4] = static_cast<uint8_t>(minimums[j] | (minimums[j + 4] >> 4 << 6));
    packed[j + 8] = static_cast<uint8_t>((scales[j + 4] & 15) | ((minimums[j + 4] & 15) << 4));
  }
}

}  // namespace inferno
