// inferno as a library: load a model, turn text into tokens, generate text as it comes, for many callers at once;
// inspect, quantize, plan, check and measure models.
//
//   inferno::Llm llm = inferno::Llm::load("model.gguf");
//   llm.generate("Once upon a time", {.max_new_tokens = 100}, [](const inferno::TokenEvent& token) {
//     std::cout << token.text << std::flush;
//     return true;  // false ends the generation
//   });
//
// Every failure is an inferno::Error whose message is one line. The library prints nothing; warnings go to the sink
// that set_log_sink() installs.
#pragma once

#include "inferno/answer.h"
#include "inferno/error.h"
#include "inferno/llm.h"
#include "inferno/log.h"
#include "inferno/tools.h"
#include "inferno/types.h"

namespace inferno {

[[nodiscard]] INFERNO_API std::string version();

}  // namespace inferno
