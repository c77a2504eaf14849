// A stretch of a prompt on its way from a chat template to a tokenizer.
#pragma once

#include <string>

namespace inferno {

// Added tokens (control and user-defined, such as <|im_end|>) are recognised in control pieces only: what a user typed
// is never one.
struct PromptPiece {
  std::string text;
  bool control = false;
};

}  // namespace inferno
