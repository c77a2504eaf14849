// many_requests [MODEL.gguf]: several texts at once, each as long as its own limit, one of them cancelled.
#include <inferno/inferno.h>

#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  try {
    inferno::set_log_sink([](inferno::LogLevel, std::string_view text) { std::cerr << text << "\n"; });
    const inferno::LoadOptions load{.context = 256, .max_sequences = 4};
    inferno::Llm llm = argc > 1 ? inferno::Llm::load(argv[1], load) : inferno::Llm::builtin(load);

    // All of them are computed together, by a thread of the library's own.
    const std::vector<std::string> prompts = {"Once upon a time", "The old man", "In the forest", "She opened"};
    std::vector<inferno::Generation> texts;
    for (size_t i = 0; i < prompts.size(); ++i) {
      inferno::GenerateOptions options;
      options.max_new_tokens = 20 + 10 * static_cast<int>(i);
      options.sampling = {.temperature = 0.8F, .min_p = 0.05F, .seed = i};
      texts.push_back(llm.submit(prompts[i], options));
    }
    texts.back().cancel();

    // One as it comes, the others when they are done.
    std::cout << prompts[0];
    while (const std::optional<std::string> piece = texts[0].next()) std::cout << *piece << std::flush;
    std::cout << "\n";
    for (size_t i = 1; i < texts.size(); ++i) {
      const inferno::GenerateResult result = texts[i].result();
      std::cout << prompts[i] << result.text() << " [" << inferno::to_string(result.reason()) << "]\n";
    }
  } catch (const inferno::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
