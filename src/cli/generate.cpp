// inferno generate: a text goes on.
#include "engine/generate.h"

#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/standard_streams.h"
#include "cli/chat_template.h"
#include "cli/cli.h"
#include "cli/constraint_flags.h"
#include "cli/generate_jsonl.h"
#include "cli/instruments.h"
#include "cli/prompt_input.h"
#include "cli/prompt_progress.h"
#include "cli/sampling_flags.h"
#include "cli/signals.h"
#include "cli/speculation_flags.h"
#include "engine/builtin_model.h"
#include "engine/prompt.h"
#include "template/known_templates.h"

namespace inferno::cli {
namespace {

constexpr std::string_view kStoryPrompt = "Once upon a time";
constexpr int64_t kMaxNewTokens = int64_t{1} << 24;
// For those who ask for draws without saying how hot.
constexpr float kTemperature = 0.8F;

struct GenerateCommand {
  EngineFlags engine;
  Instruments instruments;
  SamplingFlags sampling;
  ConstraintFlags constraint;
  SpeculationFlags speculation;
  ModelAndPrompt named;
  std::string prompt_file;
  std::string ids;
  std::string kv = "basic";
  int64_t max_new = 128;
  Request request;
  bool chat = false;
  std::string chat_template;
  bool json = false;
  bool jsonl = false;
  int32_t parallel = 8;
  bool no_echo = false;
  bool ignore_end = false;

  // What the arguments and options amount to.
  std::string model;
  std::string prompt;
  double load_ms = 0;

  void resolve();
  void run();
  void run_lines();
  [[nodiscard]] std::vector<int32_t> prompt_ids_of(const Engine& instance) const;
  void report(const Completion& made, const RequestMetrics& metrics, int32_t context) const;
  [[nodiscard]] std::string as_json(const std::vector<int32_t>& prompt_ids, const Completion& made,
                                    const RequestMetrics& metrics) const;
};

void GenerateCommand::resolve() {
  const auto [named_model, named_prompt] = named.resolve();
  model = named_model;
  const int given = (named_prompt ? 1 : 0) + (prompt_file.empty() ? 0 : 1) + (ids.empty() ? 0 : 1);
  if (given > 1) fail_usage("give the prompt once: as an argument, with --prompt, --file or --ids");
  if (named_prompt) prompt = *named_prompt;
  if (!prompt_file.empty() && !jsonl) prompt = read_prompt(prompt_file);
  if (given == 0 && !jsonl && has_piped_input()) prompt = read_prompt("-");
  // The built-in model alone has something to tell by itself.
  if (given == 0 && model.empty() && prompt.empty()) prompt = kStoryPrompt;
  if (!jsonl && ids.empty() && prompt.empty()) {
    fail_usage("the prompt is {}: give a text, --file, or pipe one in", given == 0 ? "missing" : "empty");
  }
  request.max_new_tokens = static_cast<int32_t>(max_new);
  request.sampling = sampling.over({.temperature = sampling.asks_for_draws() ? kTemperature : 0.0F});
  chat = chat || !chat_template.empty();
  request.recompute = kv == "off";
  request.stop_at_end = !ignore_end;
  speculation.apply(request);
}

std::vector<int32_t> GenerateCommand::prompt_ids_of(const Engine& instance) const {
  if (!ids.empty()) return parse_ids(ids);
  const Tokenizer* tokenizer = instance.tokenizer();
  if (tokenizer == nullptr) fail("\"{}\" has no vocabulary, or this build no tokenizers: use --ids", model);
  if (!chat) return encode_prompt(*tokenizer, prompt);
  const ChatMessage message{"user", prompt};
  return encode_chat(*tokenizer, {&message, 1}, {.chat_template = read_chat_template(chat_template)});
}

std::string GenerateCommand::as_json(const std::vector<int32_t>& prompt_ids, const Completion& made,
                                     const RequestMetrics& m) const {
  nlohmann::ordered_json line;
  line["prompt_ids"] = prompt_ids;
  line["generated_ids"] = made.ids;
  line["text"] = made.text;
  line["stop_reason"] = to_string(made.reason);
  if (request.sampling.temperature > 0) line["seed"] = request.sampling.seed;
  line["metrics"] = {
      {"prompt_tokens", m.prompt_tokens},
      {"generated_tokens", m.generated_tokens},
      {"load_ms", load_ms},
      {"time_to_first_token_ms", m.time_to_first_token_ms},
      {"prompt_tokens_per_second", m.prompt_tokens_per_second},
      {"decode_tokens_per_second", m.decode_tokens_per_second},
      {"drafted_tokens", m.drafted_tokens},
      {"accepted_tokens", m.accepted_tokens},
      {"per_forward_ms",
       {{"min", m.forward_min_ms}, {"max", m.forward_max_ms}, {"mean", m.forward_mean_ms}, {"n", m.forwards}}}};
  return line.dump() + "\n";
}

// What is worth knowing about a text that is not the text.
void GenerateCommand::report(const Completion& made, const RequestMetrics& m, int32_t context) const {
  if (made.reason == StopReason::context_full) {
    print_stderr("inferno: the context of {} positions is full; raise --ctx for more\n", context);
  }
  if (engine.quiet || json) return;
  if (made.reason == StopReason::length && max_new > 0) {
    print_stderr("inferno: cut after {} tokens; -n makes it more, -n -1 has no limit\n", max_new);
  }
  print_stderr("\n{}", format_metrics(m));
  print_stderr("  prompt: {} tokens, {:.1f} per second\n", m.prompt_tokens, m.prompt_tokens_per_second);
  if (m.drafted_tokens > 0) {
    print_stderr("  guessed: {} tokens, {} of them right\n", m.drafted_tokens, m.accepted_tokens);
  }
  print_stderr("  load_ms: {:.1f}\n  stop_reason: {}\n", load_ms, to_string(made.reason));
  if (request.sampling.temperature > 0) print_stderr("  seed: {}\n", request.sampling.seed);
}

void GenerateCommand::run_lines() {
  LoadOptions load = engine.load_options();
  load.max_sequences = parallel;
  load.draft = speculation.draft;
  Llm llm = model.empty() ? Llm::builtin(load) : Llm::load(model, load);
  GenerateOptions options;
  options.max_new_tokens = request.max_new_tokens;
  options.sampling = request.sampling;
  options.stop = request.stop_strings;
  options.stop_at_end = request.stop_at_end;
  options.recompute = request.recompute;
  speculation.apply(options);
  options.constraint = constraint.read();
  generate_lines(llm, prompt_file.empty() ? "-" : prompt_file, options,
                 {.chat = chat, .chat_template = read_chat_template(chat_template), .at_once = 2 * parallel});
}

void GenerateCommand::run() {
  resolve();
  if (jsonl) {
    run_lines();
    return;
  }
  const auto began = std::chrono::steady_clock::now();
  const AnyModelFile file = open_model(model);
  EngineOptions engine_options = engine.options();
  engine_options.draft = speculation.draft;
  instruments.install(engine_options);
  Engine instance(file, engine_options);
  load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
  request.prompt = prompt_ids_of(instance);
  instance.constraints().apply(constraint.read(), request);
  const std::atomic<bool>& interrupted = watch_interrupt();

  const auto show = [&](std::string_view fresh) {
    if (json || fresh.empty()) return;
    write_stdout(fresh);
    flush_stdout();
  };
  const bool has_text = instance.tokenizer() != nullptr;
  // A text is shown with its beginning; an answer without its question. Not before there is more of it: it may be
  // refused, and a bar shows how far it is computed.
  std::string_view beginning = has_text && !chat && !no_echo && ids.empty() ? std::string_view(prompt) : "";
  PromptProgress progress(instance.scheduler(), request.prompt.size(), engine.quiet);
  bool is_first = true;
  request.on_token = [&](const TokenEvent& event) {
    progress.stop();
    show(std::exchange(beginning, {}));
    if (has_text) {
      show(event.text);
    } else {
      show(fmt::format("{}{}", is_first ? "" : ",", event.id));
    }
    is_first = false;
    return true;
  };
  const std::vector<int32_t> prompt_ids = request.prompt;
  Request copy = request;
  const RequestResult result = generate(instance, std::move(copy), &interrupted);
  progress.stop();
  show(std::exchange(beginning, {}));
  const Completion& made = result.samples.front();
  write_stdout(json ? as_json(prompt_ids, made, result.metrics) : "\n");
  flush_stdout();
  report(made, result.metrics, instance.context());
  instruments.finish();
  if (made.reason == StopReason::cancelled) throw Exit{.signal = SIGINT};
}

}  // namespace

void add_generate(CLI::App& app) {
  auto command = std::make_shared<GenerateCommand>();
  CLI::App* sub = app.add_subcommand("generate", "continue a text, or answer with --chat");
  sub->footer(
      "Examples:\n"
      "  inferno generate                                       the built-in model tells a story\n"
      "  inferno generate --temp 0.8 --top-k 40 \"The sea\"       sampled instead of greedy\n"
      "  inferno generate model.gguf --chat \"What is a GPU?\"    a chat model answers\n"
      "  inferno generate model.gguf --file prompt.txt -n 500   a prompt from a file (- for standard input)\n"
      "  echo \"The sea\" | inferno generate -m model.gguf        the same from a pipe\n"
      "  inferno generate model.gguf --jsonl < in > out         many prompts: one {\"prompt\": ...} per line");
  command->named.add_to(*sub);
  sub->add_option("-n", command->max_new, "tokens to make at most; -1: no limit but the context")
      ->check(CLI::Range(int64_t{-1}, kMaxNewTokens))
      ->capture_default_str();
  sub->add_option("--kv", command->kv, "off: recompute everything for every token")
      ->check(CLI::IsMember({"off", "basic"}))
      ->capture_default_str();
  command->sampling.add_to(*sub);
  command->constraint.add_to(*sub);
  command->speculation.add_to(*sub);
  sub->add_option("--stop", command->request.stop_strings,
                  "end where this text would appear (may be given several times)")
      ->allow_extra_args(false);
  sub->add_flag("--ignore-end", command->ignore_end, "do not stop at the model's end tokens");
  sub->add_flag("--no-echo", command->no_echo, "do not print the prompt before its continuation");
  sub->add_flag("--chat", command->chat, "wrap the prompt in the model's chat format");
  sub->add_option("--chat-template", command->chat_template,
                  "a chat format instead of the model's own: a file with a Jinja template, or one of " +
                      known_template_names() + "; implies --chat");
  sub->add_option("-f,--file", command->prompt_file, "read the prompt from a file, or - for standard input");
  sub->add_option("--ids", command->ids, "the prompt as token ids, for example 1,2,3");
  CLI::Option* json = sub->add_flag("--json", command->json, "one line of JSON instead of text");
  sub->add_flag("--jsonl", command->jsonl, "many prompts: a line of JSON in, a line of JSON out, in their order")
      ->excludes(json);
  sub->add_option("--parallel", command->parallel, "prompts of --jsonl that are computed at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->engine.add_to(*sub);
  command->instruments.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
