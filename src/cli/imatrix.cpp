// inferno imatrix: which columns of a model's matrices matter, measured over a text; for quantize --imatrix.
#include "model/imatrix.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/standard_streams.h"
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "cli/prompt_input.h"
#include "engine/builtin_model.h"
#include "engine/imatrix_collector.h"
#include "engine/perplexity.h"
#include "tokenizer/tokenizer.h"

namespace inferno::cli {
namespace {

struct ImatrixCommand {
  EngineFlags engine;
  std::string model, text_file, output;
  int64_t windows = 0;

  void run();
};

void ImatrixCommand::run() {
  const AnyModelFile file = open_model(model);
  const std::string text = read_text(text_file, kMaxTextBytes);
  EngineOptions options = engine.options();
  options.ranks = nullptr;  // whole rows are looked at
  options.all_logits = true;
  options.scheduler.prompt_step_ms = SchedulerOptions::kWholeSteps;
  ImatrixCollector* collector = nullptr;  // owned by the engine
  options.decorate = [&](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
    auto decorated = std::make_unique<ImatrixCollector>(std::move(backend));
    collector = decorated.get();
    return decorated;
  };
  Engine instance(file, options);
  if (instance.tokenizer() == nullptr) fail("\"{}\" has no vocabulary, or this build no tokenizers", model);
  const std::vector<int32_t> tokens = instance.tokenizer()->encode(text, {.parse_special = false});
  const Perplexity result = measure_perplexity(instance, tokens, windows, draw_progress("imatrix", engine.quiet));
  Imatrix imatrix = collector->result();
  const int32_t window = std::min(kPerplexityWindow, instance.context());
  imatrix.datasets = {text_file};
  imatrix.chunk_tokens = static_cast<uint32_t>(window);
  imatrix.chunks = static_cast<uint32_t>(result.scored / (window - window / 2));
  imatrix.write(output);
  if (engine.quiet) return;
  print_stderr("{}: {} matrices over {} windows of {} tokens (perplexity {:.4f})\n", output, imatrix.entries.size(),
               imatrix.chunks, window, result.value);
}

}  // namespace

void add_imatrix(CLI::App& app) {
  auto command = std::make_shared<ImatrixCommand>();
  CLI::App* sub = app.add_subcommand("imatrix", "measure which columns of a model matter, for quantize --imatrix");
  sub->footer(
      "The file is llama.cpp's format, so either program can use what the other measured.\n"
      "Example:\n  inferno imatrix model-bf16.gguf text.txt -o model.imatrix.gguf");
  sub->add_option("model", command->model, "a .gguf file or a Hugging Face folder")->required();
  sub->add_option("text", command->text_file, "a text file, or - for standard input")->required();
  sub->add_option("-o,--output", command->output, "the file to write")->required();
  sub->add_option("--windows", command->windows, "measure only the first so many windows of 512 tokens (0: all)")
      ->check(CLI::Range(int64_t{0}, INT64_MAX));
  command->engine.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
