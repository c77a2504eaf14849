// Weight formats: one group of 32 values out of the planes of weight_planes.h.
//
// A format is a set of constants; tests/metal checks that each weight type of the registry has one that agrees with it.
#ifndef INFERNO_METAL_FORMATS_H
#define INFERNO_METAL_FORMATS_H
#include "common.h"

// By Codebook, as in weight_formats.inc.
constant char kCodebookIq4Nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constant char kCodebookE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

enum ScaleKind {
  kScaleD,        // blocks of 32: f16 d
  kScaleBf16,     // blocks of 32: bf16 d
  kScaleDM,       // blocks of 32: f16 d and m
  kScaleGroup,    // super-blocks: one signed scale for the group
  kScaleHalves,   // super-blocks: a signed scale for each half
  kScaleMinimum,  // super-blocks: scale and minimum of the group
  kScaleJoined    // super-blocks: for each half a scale and a minimum of 4 bits
};
enum CodebookKind { kNoCodebook, kIq4Nl, kE2m1 };

template <int kBitsOf, int kOffsetOf, int kScaleOf, int kCodebookOf>
struct Format {
  enum { kBits = kBitsOf, kOffset = kOffsetOf, kScale = kScaleOf, kCodebook = kCodebookOf };
};
typedef Format<8, 0, kScaleD, kNoCodebook> FormatQ8_0;
typedef Format<4, 8, kScaleD, kNoCodebook> FormatQ4_0;
typedef Format<4, 0, kScaleDM, kNoCodebook> FormatQ4_1;
typedef Format<5, 16, kScaleD, kNoCodebook> FormatQ5_0;
typedef Format<5, 0, kScaleDM, kNoCodebook> FormatQ5_1;
typedef Format<2, 0, kScaleJoined, kNoCodebook> FormatQ2_K;
typedef Format<3, 4, kScaleHalves, kNoCodebook> FormatQ3_K;
typedef Format<4, 0, kScaleMinimum, kNoCodebook> FormatQ4_K;
typedef Format<5, 0, kScaleMinimum, kNoCodebook> FormatQ5_K;
typedef Format<6, 32, kScaleHalves, kNoCodebook> FormatQ6_K;
typedef Format<4, 0, kScaleD, kIq4Nl> FormatIQ4_NL;
typedef Format<4, 0, kScaleBf16, kE2m1> FormatMXFP4;
typedef Format<4, 0, kScaleGroup, kIq4Nl> FormatIQ4_XS;

// 32 values: value v = scale[v / 16] * level[v] + minimum[v / 16].
struct Group {
  float level[32];
  float scale[2];
  float minimum[2];
};

template <typename F>
inline float level_of(uint code) {
  if (F::kCodebook == kIq4Nl) return float(kCodebookIq4Nl[code]);
  if (F::kCodebook == kE2m1) return float(kCodebookE2m1[code]);
  return float(int(code) - int(F::kOffset));
}

// The codes of a group, as they are stored.
struct Codes {
  uint words[8];  // 8 bits: all; 2 bits: the first two; others: the first four, value v in the nibble of v / 16
  uint high[2];   // 5 bits: one word, bit v; 6 bits: word v / 16, bits 2 * (v % 16)
};

// index: of the group among all groups of the weight.
template <typename F>
inline void load_codes(thread Codes& codes, constant PlaneArgs& planes, device const uchar* weight, ulong index) {
  enum { kWords = F::kBits == 8 ? 8 : F::kBits == 2 ? 2 : 4, kHighWords = F::kBits == 5 ? 1 : F::kBits == 6 ? 2 : 0 };
  device const uint* words = (device const uint*)(weight + planes.q + index * (kWords * 4));
  for (uint w = 0; w < kWords; ++w) codes.words[w] = words[w];
  if (kHighWords == 0) return;
  device const uint* high = (device const uint*)(weight + planes.h + index * (kHighWords * 4));
  for (uint w = 0; w < kHighWords; ++w) codes.high[w] = high[w];
}

template <typename F>
inline float level_at(thread const Codes& codes, uint v) {
  if (F::kBits == 8) return float(char((codes.words[v / 4] >> (v % 4 * 8)) & 255u));
  if (F::kBits == 2) return level_of<F>((codes.words[v / 16] >> (v % 16 * 2)) & 3u);
  uint code = (codes.words[v % 16 / 4] >> (v % 4 * 8 + v / 16 * 4)) & 15u;
  if (F::kBits == 5) code |= ((codes.high[0] >> v) & 1u) << 4;
  if (F::kBits == 6) code |= ((codes.high[v / 16] >> (v % 16 * 2)) & 3u) << 4;
  return level_of<F>(code);
}

template <typename F>
inline void load_levels(thread Group& group, constant PlaneArgs& planes, device const uchar* weight, ulong index) {
  Codes codes;
  load_codes<F>(codes, planes, weight, index);
  for (uint v = 0; v < 32; ++v) group.level[v] = level_at<F>(codes, v);
}

template <typename F>
inline void load_scales(thread Group& group, constant PlaneArgs& planes, device const uchar* weight, ulong index) {
  group.minimum[0] = 0.0f;
  if (F::kScale == kScaleD || F::kScale == kScaleBf16) {
    ushort bits = *(device const ushort*)(weight + planes.s + index * 2);
    group.scale[0] = F::kScale == kScaleBf16 ? bf16_to_float(bits) : f16_to_float(bits);
  } else if (F::kScale == kScaleDM) {
    device const ushort* bits = (device const ushort*)(weight + planes.s + index * 4);
    group.scale[0] = f16_to_float(bits[0]);
    group.minimum[0] = f16_to_float(bits[1]);
  } else {
    device const uchar* bytes = weight + planes.s + index * 2;
    bool has_minimum = F::kScale == kScaleMinimum || F::kScale == kScaleJoined;
    device const ushort* factors = (device const ushort*)(weight + planes.d + index / 8 * (has_minimum ? 4 : 2));
    float d = f16_to_float(factors[0]);
    float dmin = has_minimum ? f16_to_float(factors[1]) : 0.0f;
    if (F::kScale == kScaleJoined) {
      for (uint h = 0; h < 2; ++h) {
        group.scale[h] = d * float(uint(bytes[h]) & 15u);
        group.minimum[h] = -(dmin * float(uint(bytes[h]) >> 4));
      }
      return;
    }
    if (F::kScale == kScaleHalves) {
      for (uint h = 0; h < 2; ++h) group.scale[h] = d * float(char(bytes[h]));
      group.minimum[1] = 0.0f;
      return;
    }
    group.scale[0] = F::kScale == kScaleGroup ? d * float(char(bytes[0])) : d * float(bytes[0]);
    group.minimum[0] = F::kScale == kScaleMinimum ? -(dmin * float(bytes[1])) : 0.0f;
  }
  group.scale[1] = group.scale[0];
  group.minimum[1] = group.minimum[0];
}

template <typename F>
inline void load_group(thread Group& group, constant PlaneArgs& planes, device const uchar* weight, ulong index) {
  load_levels<F>(group, planes, weight, index);
  load_scales<F>(group, planes, weight, index);
}

// Plain types: one value of a row.
enum PlainKind { kPlainF32, kPlainF16, kPlainBf16 };
template <int kKind>
inline float plain_value(device const uchar* row, uint col) {
  if (kKind == kPlainF32) return ((device const float*)row)[col];
  ushort bits = ((device const ushort*)row)[col];
  return kKind == kPlainF16 ? f16_to_float(bits) : bf16_to_float(bits);
}
#endif
