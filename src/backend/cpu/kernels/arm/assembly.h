// Pieces of assembly for the kernels that are written in it. Operands named in brackets are those of the asm statement.
#pragma once

// clang-format off
#define INFERNO_ALL_VECTORS \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", \
  "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"

#define INFERNO_LOAD(q, base, at) "ldr q" #q ", [%[" #base "], #" #at "]\n"
#define INFERNO_LOAD_HALF(d, base, at) "ldr d" #d ", [%[" #base "], #" #at "]\n"
#define INFERNO_ZERO(v) "movi v" #v ".2d, #0\n"
#define INFERNO_ZERO_4(a, b, c, d) INFERNO_ZERO(a) INFERNO_ZERO(b) INFERNO_ZERO(c) INFERNO_ZERO(d)

// Blocks with one scale per 32 columns: 2 x 2 integer sums of a row pair and a token pair, then
// running += float(sum) * (scales of the rows * scales of the tokens).
#define INFERNO_MATRIX(sum, rows, tokens) "smmla v" #sum ".4s, v" #rows ".16b, v" #tokens ".16b\n"
#define INFERNO_WIDEN(f32, f16) "fcvtl v" #f32 ".4s, v" #f16 ".4h\n"
#define INFERNO_TWICE_LOW(out, v) "zip1 v" #out ".4s, v" #v ".4s, v" #v ".4s\n"
#define INFERNO_TWICE_HIGH(out, v) "zip2 v" #out ".4s, v" #v ".4s, v" #v ".4s\n"
#define INFERNO_SCALES(product, a, b) "fmul v" #product ".4s, v" #a ".4s, v" #b ".4s\n"
#define INFERNO_FLOAT(sum) "scvtf v" #sum ".4s, v" #sum ".4s\n"
#define INFERNO_ADD(running, sum, product) "fmla v" #running ".4s, v" #sum ".4s, v" #product ".4s\n"

// A loop of %[n] > 0 blocks of which a round finishes (late) the block that the round before it began (early). The macro
// `order` lists a round once, with both kinds marked: the loop keeps both, half a round before it the early ones, half a
// round after it the late ones. `next` moves the addresses on.
#define INFERNO_KEEP(...) __VA_ARGS__
#define INFERNO_DROP(...)
#define INFERNO_ROUNDS(order, next) \
  order(INFERNO_KEEP, INFERNO_DROP) next \
  "subs %[n], %[n], #1\n" \
  "b.eq 2f\n" \
  ".p2align 5\n" \
  "1:\n" \
  order(INFERNO_KEEP, INFERNO_KEEP) next \
  "subs %[n], %[n], #1\n" \
  "b.ne 1b\n" \
  "2:\n" \
  order(INFERNO_DROP, INFERNO_KEEP)
// clang-format on
