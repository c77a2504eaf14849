// tell_story [TOKENS] [MODEL.gguf]: a story, as it is made.
#include <inferno/inferno.h>

#include <cstdlib>
#include <iostream>

int main(int argc, char** argv) {
  try {
    inferno::Llm llm = argc > 2 ? inferno::Llm::load(argv[2]) : inferno::Llm::builtin();
    inferno::GenerateOptions options;
    options.max_new_tokens = argc > 1 ? std::atoi(argv[1]) : 100;
    options.sampling = {.temperature = 0.8F, .top_k = 40, .repeat_penalty = 1.15F};
    std::cout << "Once upon a time";
    const inferno::GenerateResult result =
        llm.generate("Once upon a time", options, [](const inferno::TokenEvent& token) {
          std::cout << token.text << std::flush;
          return true;
        });
    std::cout << "\n\n" << result.metrics.decode_tokens_per_second << " tokens per second\n";
  } catch (const inferno::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
