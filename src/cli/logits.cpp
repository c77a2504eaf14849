// inferno logits: raw float32 logits, for comparing engines.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "cli/cli.h"
#include "inferno/llm.h"

namespace inferno::cli {
namespace {

struct LogitsCommand {
  EngineFlags engine;
  std::string model;
  std::string ids;
  bool all = false;

  void run() const;
};

void LogitsCommand::run() const {
  const std::vector<int32_t> tokens = parse_ids(ids);
  if (tokens.empty()) fail_usage("--ids is empty; give token ids such as 1,2,3");
  // mpirun gives every rank a terminal, whatever its own output is.
  if (::isatty(STDOUT_FILENO) == 1 && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr)
    fail_usage("logits are raw numbers, nothing for a terminal: send them to a file (> logits.bin)");
  LoadOptions options = engine.load_options();
  if (options.kv_type.empty()) options.kv_type = "f32";
  options.all_logits = all;
  Llm llm = model.empty() ? Llm::builtin(options) : Llm::load(model, options);
  const Logits logits = llm.logits(tokens, all ? 0 : -1);
  const std::span<const float> values(logits.values);
  write_stdout({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

}  // namespace

void add_logits(CLI::App& app) {
  auto command = std::make_shared<LogitsCommand>();
  CLI::App* sub = app.add_subcommand("logits", "raw logits of given tokens, little-endian float32, to standard output");
  sub->add_option("model", command->model, "a .gguf file or a Hugging Face folder (default: the built-in model)");
  sub->add_option("--ids", command->ids, "token ids, for example 1,2,3")->required();
  sub->add_flag("--all", command->all, "of every position, not only the last");
  command->engine.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
