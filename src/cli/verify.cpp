// inferno verify: one backend against another, op by op or as whole models.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "backend/op_fields.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "engine/prompt.h"
#include "verify/check.h"
#include "verify/dump.h"
#include "verify/whole.h"

namespace inferno::cli {
namespace {

constexpr std::string_view kPrompts[] = {
    "Once upon a time",          "The old man looked at the sea and", "It was a cold morning in",
    "In the middle of the wood", "\"Where are you going?\" said the", "Nobody knew why the bell",
    "The capital of France is",  "She opened the letter and read",
};

// What a dump is bound to: enough to tell models apart, without reading them.
std::string model_identity(const GgufFile& file) {
  uint64_t bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) bytes += tensor.bytes;
  const std::string* name = file.find_string("general.name");
  return fmt::format("{}, {} tensors, {} bytes", name == nullptr ? "unnamed" : printable(*name), file.tensors().size(),
                     bytes);
}

struct VerifyCommand {
  EngineFlags engine;
  std::string first, second;  // [MODEL] [PROMPT]
  std::string ids;
  std::string against = "scalar";
  std::string plant;
  std::string replay;
  std::string dump = "inferno-verify.dump";
  int64_t tokens = 8;
  int64_t whole = 0;

  std::string model;
  std::string prompt;

  void resolve();
  void run();

 private:
  [[nodiscard]] std::string tested() const {
    return engine.backend.empty() ? std::string(default_backend_name()) : engine.backend;
  }
  [[nodiscard]] bool fused() const { return engine.fused == "on"; }
  [[nodiscard]] std::vector<int32_t> encode(const Engine& instance, std::string_view text) const;
  [[nodiscard]] Numerics numerics_between(const Backend& a, const Backend& b) const;
  void run_lockstep();
  void run_replay();
  void run_whole();
};

void VerifyCommand::resolve() {
  const bool has_model = !first.empty() && looks_like_model(first);
  if (!has_model && !second.empty()) {
    fail_usage("\"{}\" is not a model file (a model's name ends in .gguf); quote a prompt of several words",
               printable(first));
  }
  model = has_model ? first : "";
  prompt = has_model ? second : first;
  if (prompt.empty()) prompt = kPrompts[0];
}

Numerics VerifyCommand::numerics_between(const Backend& a, const Backend& b) const {
  if (!fused()) return Numerics::default_bodies;
  return a.host_visible() && b.host_visible() ? Numerics::cpu_kernels : Numerics::definition;
}

std::vector<int32_t> VerifyCommand::encode(const Engine& instance, std::string_view text) const {
  if (!ids.empty()) return parse_ids(ids);
  const Tokenizer* tokenizer = instance.tokenizer();
  if (tokenizer == nullptr) fail("\"{}\" has no vocabulary, or this build no tokenizers: use --ids", model);
  return encode_prompt(*tokenizer, text);
}

void VerifyCommand::run() {
  resolve();
  if (!replay.empty()) {
    run_replay();
  } else if (whole > 0) {
    run_whole();
  } else {
    run_lockstep();
  }
}

// ---- op by op

void VerifyCommand::run_lockstep() {
  CheckOptions check;
  if (!plant.empty()) check.plant = require_op(plant);
  const GgufFile file = open_model(model);
  EngineOptions options = engine.options();
  std::unique_ptr<Backend> reference = create_backend(against, options.backend_options);
  CheckingBackend* checking = nullptr;
  options.decorate = [&](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
    check.numerics = numerics_between(*backend, *reference);
    auto made = std::make_unique<CheckingBackend>(std::move(backend), std::move(reference), check);
    checking = made.get();
    return made;
  };
  Engine instance(file, options);
  const std::vector<int32_t> prompt_ids = encode(instance, prompt);
  (void)generate(instance,
                 {.prompt = prompt_ids, .max_new_tokens = static_cast<int32_t>(tokens), .stop_at_end = false});

  if (check.plant && !checking->has_checked(*check.plant)) {
    fail_usage("--plant {}: this run never calls that op{}", plant, fused() ? "; primitives run with --fused off" : "");
  }
  write_stdout(fmt::format("verify: {} against {}: {} ops, {} tokens of prompt and {} more\n", tested(), against,
                           checking->checked(), prompt_ids.size(), tokens));
  write_stdout(checking->report());
  if (!checking->first_divergence()) {
    write_stdout("no op is beyond its limit\n");
    return;
  }
  const DumpInfo info{.model = model_identity(file),
                      .tested = tested(),
                      .reference = against,
                      .fused = fused(),
                      .layer = checking->first_divergence()->layer};
  write_dump(dump, checking->first_image(), info);
  write_stdout(fmt::format("its inputs are in {}: inferno verify --replay {}\n", dump, dump));
  flush_stdout();
  throw Exit{1};
}

// ---- one op out of a file

void VerifyCommand::run_replay() {
  const Dump recorded = read_dump(replay);
  if (!model.empty()) {
    const GgufFile file = open_model(model);
    if (model_identity(file) != recorded.info.model) {
      fail("\"{}\" was recorded with another model ({}), not with {} ({})", replay, recorded.info.model, model,
           model_identity(file));
    }
  }
  BackendOptions options = engine.options().backend_options;
  options.fused = recorded.info.fused && fused();
  const std::string a = engine.backend.empty() ? recorded.info.tested : engine.backend;
  std::unique_ptr<Backend> tested_backend = create_backend(a, options);
  std::unique_ptr<Backend> reference = create_backend(against, options);
  const Numerics numerics = !options.fused ? Numerics::default_bodies : numerics_between(*tested_backend, *reference);
  const OpCheck check = check_image(recorded.image, std::move(tested_backend), std::move(reference), numerics);
  const std::string layer = recorded.info.layer < 0 ? "" : fmt::format(" of layer {}", recorded.info.layer);
  write_stdout(fmt::format(
      "replay: {}{} on {} against {}\n  ({})\n  {}: max ulp {}, max abs {:.3g}, nmse {:.3g} (limit {:.3g}): {}{}\n",
      check.name(), layer, a, against, check.args, check.worst.field, check.worst.max_ulp, check.worst.max_abs,
      check.worst.nmse, check.limit, check.diverges() ? "diverges" : "agrees", check.blame()));
  flush_stdout();
  if (check.diverges()) throw Exit{1};
}

// ---- whole models

void VerifyCommand::run_whole() {
  const GgufFile file = open_model(model);
  EngineOptions options = engine.options();
  options.all_logits = true;
  Engine a(file, options);
  options.backend = against;
  if (!options.kv_dtype) options.kv_dtype = a.cache().config().dtype;
  Engine b(file, options);
  const auto vocabulary = static_cast<size_t>(a.model().config().vocabulary);
  WholeComparison comparison(a.model().config().vocabulary);
  for (int64_t i = 0; i < whole; ++i) {
    const std::vector<int32_t> prompt_ids =
        encode(a, i == 0 ? std::string_view(prompt) : kPrompts[static_cast<size_t>(i) % std::size(kPrompts)]);
    a.check_tokens(prompt_ids);
    Request request{.prompt = prompt_ids, .max_new_tokens = static_cast<int32_t>(tokens), .stop_at_end = false};
    const std::vector<int32_t> text_a = generate(a, request).samples.front().ids;
    const std::vector<int32_t> text_b = generate(b, request).samples.front().ids;
    // Both read the reference's text, so that every position can be compared.
    std::vector<int32_t> sequence = prompt_ids;
    sequence.insert(sequence.end(), text_b.begin(), text_b.end());
    const auto rows = static_cast<int32_t>(
        std::min<size_t>(sequence.size(), static_cast<size_t>(a.decoder().limits().max_logit_rows)));
    sequence.resize(static_cast<size_t>(rows));
    std::vector<float> logits_a(static_cast<size_t>(rows) * vocabulary);
    std::vector<float> logits_b(logits_a.size());
    BareSequence(a).forward(0, sequence, rows);
    a.decoder().download_logits(logits_a);
    BareSequence(b).forward(0, sequence, rows);
    b.decoder().download_logits(logits_b);
    comparison.add_logits(logits_a, logits_b);
    // The last token of the prompt gives the first of the text.
    const auto known = std::min(logits_b.size(), (prompt_ids.size() - 1) * vocabulary);
    comparison.add_texts(text_a, text_b, std::span(logits_b).subspan(known));
  }
  write_stdout(fmt::format("verify: {} against {}, whole model, {} prompts and {} tokens each\n{}", tested(), against,
                           whole, tokens, comparison.report()));
  if (const std::string verdict = comparison.verdict(); !verdict.empty()) {
    write_stdout(verdict + "\n");
    flush_stdout();
    throw Exit{1};
  }
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
  sub->add_option("model_or_prompt", command->first, "a .gguf file; otherwise it is the prompt of the built-in model");
  sub->add_option("prompt", command->second, "the text to run (default: Once upon a time)");
  sub->add_option("--against", command->against, "the reference backend")->capture_default_str();
  sub->add_option("-n", command->tokens, "tokens to make after the prompt")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  sub->add_option("--ids", command->ids, "the prompt as token ids, for example 1,2,3");
  sub->add_option("--plant", command->plant, "compute this op wrongly, to see it found");
  sub->add_option("--dump", command->dump, "where the inputs of the first diverging op go")->capture_default_str();
  sub->add_option("--replay", command->replay, "run what is in such a file");
  sub->add_option("--whole", command->whole, "compare logits and greedy texts of so many prompts instead")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  command->engine.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
