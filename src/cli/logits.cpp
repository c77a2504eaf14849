// inferno logits: raw float32 logits, for comparing engines.
#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "cli/cli.h"
#include "generate/builtin_model.h"

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
  instance.check_tokens(tokens);
  const auto count = static_cast<int32_t>(tokens.size());
  if (count > instance.context())
    fail("{} tokens are more than the context of {}; raise --ctx", count, instance.context());

  const auto vocabulary = static_cast<size_t>(instance.model().config().vocabulary);
  std::vector<float> rows;
  const auto write_rows = [&] {
    rows.resize(static_cast<size_t>(instance.decoder().logit_rows()) * vocabulary);
    instance.decoder().download_logits(rows);
    write_stdout({reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(float)});
  };
  if (!all) {
    instance.forward(0, 0, tokens, 1);
    write_rows();
    return;
  }
  const int32_t chunk = instance.decoder().limits().max_tokens;
  for (int32_t first = 0; first < count; first += chunk) {
    const int32_t size = std::min(chunk, count - first);
    instance.forward(0, first, std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(size)), size);
    write_rows();
  }
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
