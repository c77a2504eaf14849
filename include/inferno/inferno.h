// inferno as a library: load a model, turn text into tokens, generate text as it comes, cancel, measure.
//
//   inferno::Llm llm = inferno::Llm::load("model.gguf");
//   llm.generate("Once upon a time", {.max_new_tokens = 100}, [](std::string_view text) {
//     std::cout << text << std::flush;
//     return true;  // false ends the generation
//   });
//
// Every failure is an inferno::Error whose message is one line. An Llm is used by one thread at a time; cancel() alone
// may be called from any thread, at any time. The library prints nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inferno/error.h"

namespace inferno {

struct LoadOptions {
  std::string backend;  // "scalar", "simd", "parallel", "cuda", "metal"; empty: the best there is
  int threads = 0;      // 0: as many as pay off
  int32_t context = 0;  // positions of context; 0: the model's own, at most 4096
  std::string kv_type;  // "f32", "f16", "bf16"; empty: the backend's default
};

struct GenerateOptions {
  int32_t max_new_tokens = 128;
  float temperature = 0;     // 0: always the likeliest token
  int32_t top_k = 0;         // 0: off
  float top_p = 1;           // 1: off
  float min_p = 0;           // 0: off
  float repeat_penalty = 1;  // 1: off
  uint64_t seed = 0;
  std::vector<std::string> stop;  // ends where one of these would appear
  bool chat = false;              // wrap the prompt in the model's chat format
};

struct GenerateMetrics {
  int32_t prompt_tokens = 0;
  int32_t generated_tokens = 0;
  double time_to_first_token_ms = 0;
  double decode_tokens_per_second = 0;
};

struct GenerateResult {
  std::string text;
  std::vector<int32_t> ids;
  std::string stop_reason;  // "length", "end_token", "stop_string", "context_full" or "cancelled"
  GenerateMetrics metrics;
};

// Called with each new piece of text, whole characters only; false ends the generation.
using TextCallback = std::function<bool(std::string_view text)>;

class INFERNO_API Llm {
 public:
  [[nodiscard]] static Llm load(const std::string& path, const LoadOptions& options = {});
  // The small story-telling model that is part of the library.
  [[nodiscard]] static Llm builtin(const LoadOptions& options = {});
  ~Llm();
  Llm(Llm&& other) noexcept;
  Llm& operator=(Llm&& other) noexcept;

  [[nodiscard]] GenerateResult generate(std::string_view prompt, const GenerateOptions& options = {},
                                        const TextCallback& on_text = {});
  // Ends the generate() that runs now after the token being made; does nothing when none runs.
  void cancel();

  // Added tokens such as <|im_end|> are recognised in the text unless parse_special is false.
  [[nodiscard]] std::vector<int32_t> tokenize(std::string_view text, bool parse_special = true) const;
  [[nodiscard]] std::string detokenize(std::span<const int32_t> ids) const;  // raw bytes
  [[nodiscard]] int32_t vocabulary() const;
  [[nodiscard]] int32_t context() const;
  [[nodiscard]] std::string backend() const;

 private:
  struct Impl;
  explicit Llm(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

[[nodiscard]] INFERNO_API std::string version();

}  // namespace inferno
