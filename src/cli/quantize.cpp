// inferno quantize: a model file with its matrices in another type. inferno convert: a file out of a folder.
#include <fmt/core.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/standard_streams.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "inferno/tools.h"

namespace inferno::cli {

namespace {

struct QuantizeCommand {
  std::string input, output, type;
  QuantizeOptions options;
  std::vector<std::string> tensor_types;
  bool quiet = false;
  bool from_folder = false;

  void add_to(CLI::App& sub);
  void run();
};

// "attn_v=Q6_K": the type is what follows the last =.
QuantizeOptions::TensorType parse_tensor_type(const std::string& text) {
  const size_t sign = text.find_last_of('=');
  if (sign == std::string::npos || sign == 0 || sign + 1 == text.size()) {
    fail_usage("\"{}\" is not PATTERN=TYPE, such as attn_v=Q6_K", printable(text));
  }
  return {text.substr(0, sign), text.substr(sign + 1)};
}

void QuantizeCommand::run() {
  struct stat status{};
  if (from_folder && ::stat(input.c_str(), &status) == 0 && !S_ISDIR(status.st_mode))
    fail_usage("\"{}\" is not a folder; inferno quantize takes files", printable(input));
  for (const std::string& text : tensor_types) options.tensor_types.push_back(parse_tensor_type(text));
  options.on_progress = draw_progress(fmt::format("{} to {}", from_folder ? "converting" : "quantizing", type), quiet);
  const QuantizeReport report = quantize_model(input, output, type, options);
  for (const std::string& line : report.warnings) print_stderr("inferno: warning: {}\n", line);
  if (quiet) return;
  for (const std::string& line : report.fallbacks) print_stderr("inferno: {}\n", line);
  print_stderr("{} -> {} ({:.1f} %)\n", format_bytes(report.bytes_in), format_bytes(report.bytes_out),
               100.0 * static_cast<double>(report.bytes_out) / static_cast<double>(report.bytes_in));
}

void QuantizeCommand::add_to(CLI::App& sub) {
  sub.add_option("output", output, "the .gguf file to write")->required();
  sub.add_option("type", type, "the type, or a mix")->required();
  sub.add_option("--imatrix", options.imatrix, "importances of the columns, from inferno imatrix or llama.cpp");
  sub.add_option("--output-type", options.output_type, "type of the output head");
  sub.add_option(
         "--tensor-type", tensor_types,
         "PATTERN=TYPE: type of tensors whose name holds a match of the pattern (repeatable, the first decides)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub.add_flag("--pure", options.pure, "the main type of a mix for all matrices");
  sub.add_option("--threads", options.threads, "CPU threads (0: all that pay off)")->check(CLI::Range(0, 4096));
  sub.add_flag("--quiet", quiet, "no progress, no summary");
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto command = std::make_shared<QuantizeCommand>();
  CLI::App* sub = app.add_subcommand("quantize", "write a model file with its matrices in another type");
  sub->footer(
      "Types: " + weight_type_names() +
      "\nA name means what it does elsewhere: nearly all keep the output head in Q6_K, and the mixes (_S, _M, _L,\n"
      "Q2_K) give more bits to the tensors where errors cost most.\n"
      "Examples:\n"
      "  inferno quantize model-bf16.gguf model-q4_k_m.gguf Q4_K_M\n"
      "  inferno imatrix model-bf16.gguf text.txt -o model.imatrix.gguf\n"
      "  inferno quantize model-bf16.gguf model-q2_k.gguf Q2_K --imatrix model.imatrix.gguf");
  sub->add_option("input", command->input, "the .gguf file to read")->required();
  command->add_to(*sub);
  sub->callback([command] { command->run(); });
}

void add_convert(CLI::App& app) {
  auto command = std::make_shared<QuantizeCommand>();
  command->from_folder = true;
  CLI::App* sub = app.add_subcommand("convert", "write a Hugging Face folder as a .gguf file");
  sub->footer("Types: " + weight_type_names() +
              "\nThe folder holds config.json, safetensors and tokenizer.json; other commands take it as it is.\n"
              "Example:\n"
              "  inferno convert ./Qwen3-0.6B qwen3-0.6b-q8_0.gguf Q8_0");
  sub->add_option("folder", command->input, "the folder to read")->required();
  command->add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
