// inferno quantize: a model file with its matrices in another type.
#include <fmt/core.h>

#include "base/standard_streams.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "inferno/tools.h"

namespace inferno::cli {

void add_quantize(CLI::App& app) {
  struct Command {
    std::string input, output, type;
    int threads = 0;
    bool quiet = false;
  };
  auto command = std::make_shared<Command>();
  CLI::App* sub = app.add_subcommand("quantize", "write a model file with its matrices in another type");
  sub->footer("Types: " + weight_type_names() +
              "\nQ4_K_M and Q5_K_M are mixes: the output head and some other tensors become Q6_K.\n"
              "Example:\n  inferno quantize model-bf16.gguf model-q4_k_m.gguf Q4_K_M");
  sub->add_option("input", command->input, "the .gguf file to read")->required();
  sub->add_option("output", command->output, "the .gguf file to write")->required();
  sub->add_option("type", command->type, "the type, or a mix")->required();
  sub->add_option("--threads", command->threads, "CPU threads (0: all that pay off)")->check(CLI::Range(0, 4096));
  sub->add_flag("--quiet", command->quiet, "no progress, no summary");
  sub->callback([command] {
    const QuantizeReport report =
        quantize_model(command->input, command->output, command->type, command->threads,
                       draw_progress(fmt::format("quantizing to {}", command->type), command->quiet));
    if (command->quiet) return;
    for (const std::string& line : report.fallbacks) print_stderr("inferno: {}\n", line);
    print_stderr("{} -> {} ({:.1f} %)\n", format_bytes(report.bytes_in), format_bytes(report.bytes_out),
                 100.0 * static_cast<double>(report.bytes_out) / static_cast<double>(report.bytes_in));
  });
}

}  // namespace inferno::cli
