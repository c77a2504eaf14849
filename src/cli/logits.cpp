// inferno logits: raw float32 logits, for comparing engines.
#include <fmt/core.h>

#include "base/error.h"
#include "cli/cli.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"

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
  const GgufFile file = open_model(model);
  const std::vector<int32_t> tokens = parse_ids(ids);
  if (tokens.empty()) fail_usage("--ids is empty; give token ids such as 1,2,3");
  EngineOptions options = engine.options();
  if (!options.kv_dtype) options.kv_dtype = DType::f32;
  options.all_logits = all;
  Engine instance(file, options);
  Request request{.prompt = tokens, .max_new_tokens = 0, .text = false};
  request.logits_from = all ? 0 : static_cast<int32_t>(tokens.size()) - 1;
  request.on_logits = [](int32_t /*first*/, std::span<const float> rows) {
    write_stdout({reinterpret_cast<const char*>(rows.data()), rows.size_bytes()});
  };
  (void)generate(instance, std::move(request));
}

}  // namespace

void add_logits(CLI::App& app) {
  auto command = std::make_shared<LogitsCommand>();
  CLI::App* sub = app.add_subcommand("logits", "raw logits of given tokens, little-endian float32, to standard output");
  sub->add_option("model", command->model, "a .gguf file (default: the built-in model)");
  sub->add_option("--ids", command->ids, "token ids, for example 1,2,3")->required();
  sub->add_flag("--all", command->all, "of every position, not only the last");
  command->engine.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
