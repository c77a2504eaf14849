// inferno perplexity: how well a model predicts a text.
#include "engine/perplexity.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/instruments.h"
#include "cli/progress_bar.h"
#include "cli/prompt_input.h"
#include "engine/builtin_model.h"
#include "tokenizer/tokenizer.h"

namespace inferno::cli {
namespace {

struct PerplexityCommand {
  EngineFlags engine;
  Instruments instruments;
  std::string model, text_file;
  bool ids = false;
  bool json = false;
  int64_t windows = 0;

  void run();
};

void PerplexityCommand::run() {
  const AnyModelFile file = open_model(model);
  const std::string text = read_text(text_file, kMaxTextBytes);
  EngineOptions options = engine.options();
  options.all_logits = true;
  options.scheduler.prompt_step_ms = SchedulerOptions::kWholeSteps;
  instruments.install(options);
  Engine instance(file, options);
  std::vector<int32_t> tokens;
  if (ids) {
    tokens = parse_ids(text);
  } else {
    if (instance.tokenizer() == nullptr) {
      fail("\"{}\" has no vocabulary, or this build no tokenizers: give token ids with --ids", model);
    }
    tokens = instance.tokenizer()->encode(text, {.parse_special = false});
  }
  const Perplexity result = measure_perplexity(instance, tokens, windows, draw_progress("perplexity", engine.quiet));
  if (json) {
    const nlohmann::ordered_json line = {
        {"perplexity", result.value}, {"error", result.error}, {"scored_tokens", result.scored}};
    write_stdout(line.dump() + "\n");
  } else {
    write_stdout(
        fmt::format("perplexity: {:.4f} +/- {:.4f}  ({} tokens scored)\n", result.value, result.error, result.scored));
  }
  instruments.finish();
}

}  // namespace

void add_perplexity(CLI::App& app) {
  auto command = std::make_shared<PerplexityCommand>();
  CLI::App* sub =
      app.add_subcommand("perplexity", "how well a model predicts a text (windows of 512, second half scored)");
  sub->add_option("model", command->model, "a .gguf file or a Hugging Face folder")->required();
  sub->add_option("text", command->text_file, "a text file, or - for standard input")->required();
  sub->add_flag("--ids", command->ids, "the file holds token ids, not text");
  sub->add_option("--windows", command->windows, "score only the first so many windows (0: all)")
      ->check(CLI::Range(int64_t{0}, INT64_MAX));
  sub->add_flag("--json", command->json, "one line of JSON");
  command->engine.add_to(*sub);
  command->instruments.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
