// What becomes of text that a vocabulary lacks.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "file/vocabulary.h"

namespace inferno {

// The vocabulary's unknown token; an Error where it has none: nothing is dropped silently.
inline int32_t unknown_token(const Vocabulary& vocabulary, std::string_view bytes) {
  if (!vocabulary.unknown) fail("the vocabulary has no token for \"{}\"", printable(bytes));
  return *vocabulary.unknown;
}

}  // namespace inferno
