// inferno verify: one backend against another, op by op or as whole models.
#include <fmt/core.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/prompt_input.h"
#include "inferno/tools.h"

namespace inferno::cli {
namespace {

struct VerifyCommand {
  EngineFlags engine;
  ModelAndPrompt named;
  std::string ids;
  std::string against = "scalar";
  std::string plant;
  std::string replay;
  std::string dump = "inferno-verify.dump";
  int32_t tokens = 8;
  int32_t whole = 0;

  void run() const;

 private:
  void run_lockstep(const std::string& model, const Prompt& prompt) const;
  void run_replay(const std::string& model) const;
  void run_whole(const std::string& model, const Prompt& prompt) const;
};

[[noreturn]] void end_with(const std::string& line) {
  write_stdout(line);
  flush_stdout();
  throw Exit{1};
}

void VerifyCommand::run() const {
  const auto [model, text] = named.resolve();
  const Prompt prompt = !ids.empty() ? Prompt(parse_ids(ids)) : text ? Prompt(*text) : VerifyOptions().prompt;
  if (!replay.empty()) {
    run_replay(model);
  } else if (whole > 0) {
    run_whole(model, prompt);
  } else {
    run_lockstep(model, prompt);
  }
}

void VerifyCommand::run_lockstep(const std::string& model, const Prompt& prompt) const {
  const VerifyReport report =
      verify_model(model, engine.load_options(),
                   {.against = against, .prompt = prompt, .tokens = tokens, .plant = plant, .dump_file = dump});
  write_stdout(fmt::format("verify: {} against {}: {} ops, {} tokens of prompt and {} more\n{}", report.tested,
                           report.reference, report.checked, report.prompt_tokens, tokens, report.text));
  if (!report.first_divergence) {
    write_stdout("no op is beyond its limit\n");
    return;
  }
  end_with(fmt::format("its inputs are in {}: inferno verify --replay {}\n", dump, dump));
}

void VerifyCommand::run_replay(const std::string& model) const {
  const ReplayReport report = replay_dump(replay, against, engine.load_options(), model);
  if (report.check.diverges) end_with(report.text);
  write_stdout(report.text);
}

void VerifyCommand::run_whole(const std::string& model, const Prompt& prompt) const {
  const WholeModelReport report = verify_whole_model(
      model, engine.load_options(), {.against = against, .prompt = prompt, .prompts = whole, .tokens = tokens});
  write_stdout(fmt::format("verify: {} against {}, whole model, {} prompts and {} tokens each\n{}", report.tested,
                           report.reference, whole, tokens, report.text));
  if (!report.verdict.empty()) end_with(report.verdict + "\n");
}

}  // namespace

void add_verify(CLI::App& app) {
  auto command = std::make_shared<VerifyCommand>();
  CLI::App* sub = app.add_subcommand("verify", "check one backend against another, op by op");
  sub->footer(
      "Every op of a run is computed on both backends; the reference's result replaces the tested one, so the op that\n"
      "is named is the op to blame. Ops that a backend may run as one are compared as one. Exit code 1 when one is "
      "beyond\n"
      "its limit.\n\n"
      "Examples:\n"
      "  inferno verify --backend parallel --against scalar     the built-in model\n"
      "  inferno verify model.gguf --plant attention            see what it says when an op is wrong\n"
      "  inferno verify --fused off --plant matmul              the same for a primitive\n"
      "  inferno verify --replay inferno-verify.dump            what it found, alone\n"
      "  inferno verify model.gguf --whole 8                    logits and greedy texts instead of ops; texts may "
      "part\n"
      "                                                         only where two tokens are as likely as makes no "
      "difference");
  command->named.add_to(*sub);
  sub->add_option("--against", command->against, "the reference backend")->capture_default_str();
  sub->add_option("-n", command->tokens, "tokens to make after the prompt")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  sub->add_option("--ids", command->ids, "the prompt as token ids, for example 1,2,3");
  sub->add_option("--plant", command->plant, "compute this op wrongly, to see it found");
  sub->add_option("--dump", command->dump, "where the inputs of the first diverging op go")->capture_default_str();
  sub->add_option("--replay", command->replay, "run what is in such a file");
  sub->add_option("--whole", command->whole, "compare logits and greedy texts of so many prompts instead")
      ->check(CLI::Range(0, 1 << 20));
  command->engine.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
