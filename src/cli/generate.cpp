// inferno generate, and model-generate, its second name.
#include "engine/generate.h"
#include "base/standard_streams.h"

#include <fmt/core.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "api/load_options.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/chat_template.h"
#include "cli/cli.h"
#include "cli/instruments.h"
#include "cli/signals.h"
#include "engine/builtin_model.h"
#include "engine/prompt.h"
#include "template/known_templates.h"

namespace inferno::cli {
namespace {

constexpr std::string_view kDefaultPrompt = "Once upon a time";
constexpr uint64_t kMaxPromptBytes = uint64_t{64} << 20;
constexpr int64_t kMaxNewTokens = int64_t{1} << 24;

struct GenerateCommand {
  EngineFlags engine;
  Instruments instruments;
  std::string first, second;  // [MODEL] [PROMPT]
  std::string prompt_file;
  std::string ids;
  std::string kv = "basic";
  int64_t max_new = 128;
  Request request;
  bool chat = false;
  std::string chat_template;
  bool json = false;
  bool ignore_end = false;

  // What the arguments and options amount to.
  std::string model;
  std::string prompt;

  void resolve();
  void run();
  [[nodiscard]] std::vector<int32_t> prompt_ids_of(const Engine& instance) const;
};

void GenerateCommand::resolve() {
  const bool has_model = !first.empty() && looks_like_model(first);
  if (!has_model && !second.empty()) {
    fail_usage("\"{}\" is not a model file (a model's name ends in .gguf); quote a prompt of several words",
               printable(first));
  }
  model = has_model ? first : "";
  prompt = has_model ? second : first;
  const int given = (prompt.empty() ? 0 : 1) + (prompt_file.empty() ? 0 : 1) + (ids.empty() ? 0 : 1);
  if (given > 1) fail_usage("give the prompt once: as an argument, with --file, or with --ids");
  if (!prompt_file.empty()) prompt = read_text(prompt_file, kMaxPromptBytes);
  if (given == 0) prompt = kDefaultPrompt;
  request.max_new_tokens = static_cast<int32_t>(max_new);
  chat = chat || !chat_template.empty();
  request.recompute = kv == "off";
  request.stop_at_end = !ignore_end;
}

std::vector<int32_t> GenerateCommand::prompt_ids_of(const Engine& instance) const {
  if (!ids.empty()) return parse_ids(ids);
  const Tokenizer* tokenizer = instance.tokenizer();
  if (tokenizer == nullptr) fail("\"{}\" has no vocabulary, or this build no tokenizers: use --ids", model);
  if (!chat) return encode_prompt(*tokenizer, prompt);
  const ChatMessage message{"user", prompt};
  return encode_chat(*tokenizer, {&message, 1}, {.chat_template = read_chat_template(chat_template)});
}

void GenerateCommand::run() {
  resolve();
  const GgufFile file = open_model(model);
  EngineOptions engine_options = engine.options();
  instruments.install(engine_options);
  Engine instance(file, engine_options);
  request.prompt = prompt_ids_of(instance);
  const std::atomic<bool>& interrupted = watch_interrupt();

  const auto show = [&](std::string_view fresh) {
    if (json || fresh.empty()) return;
    write_stdout(fresh);
    flush_stdout();
  };
  const bool has_text = instance.tokenizer() != nullptr;
  bool is_first = true;
  request.on_token = [&](const TokenEvent& event) {
    if (has_text) {
      show(event.text);
    } else {
      show(fmt::format("{}{}", is_first ? "" : ",", event.id));
    }
    is_first = false;
    return true;
  };
  // A text is shown with its beginning; an answer without its question.
  if (has_text && !chat && ids.empty()) show(prompt);
  const std::vector<int32_t> prompt_ids = request.prompt;
  const RequestResult result = generate(instance, std::move(request), &interrupted);
  const Completion& made = result.samples.front();
  const RequestMetrics& m = result.metrics;
  if (json) {
    nlohmann::ordered_json line;
    line["prompt_ids"] = prompt_ids;
    line["generated_ids"] = made.ids;
    line["text"] = made.text;
    line["stop_reason"] = to_string(made.reason);
    line["metrics"] = {
        {"prompt_tokens", m.prompt_tokens},
        {"generated_tokens", m.generated_tokens},
        {"time_to_first_token_ms", m.time_to_first_token_ms},
        {"decode_tokens_per_second", m.decode_tokens_per_second},
        {"per_forward_ms",
         {{"min", m.forward_min_ms}, {"max", m.forward_max_ms}, {"mean", m.forward_mean_ms}, {"n", m.forwards}}}};
    write_stdout(line.dump() + "\n");
  } else {
    write_stdout("\n");
  }
  flush_stdout();
  if (made.reason == StopReason::context_full) {
    print_stderr("inferno: the context of {} positions is full; raise --ctx for more\n", instance.context());
  }
  if (!engine.quiet && !json) print_stderr("\n{}", format_metrics(m));
  instruments.finish();
  if (made.reason == StopReason::cancelled) throw Exit{.signal = SIGINT};
}

struct ModelGenerateArgs {
  std::string backend;
  std::string path;
  std::string prompt{kDefaultPrompt};
  int32_t max_new_tokens = 32;
  bool kv = false;
};

constexpr std::string_view kModelGenerateUsage =
    "usage: model-generate [--kv [basic]] [--backend scalar|simd|parallel|metal|cuda] <gguf_path> [prompt] "
    "[max_new_tokens]";

ModelGenerateArgs parse_model_generate(std::span<const char* const> args) {
  ModelGenerateArgs parsed;
  std::vector<std::string> positional;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string arg = args[i];
    const std::string next = i + 1 < args.size() ? args[i + 1] : "";
    if (arg == "--kv") {
      parsed.kv = true;
      if (next == "basic") ++i;
    } else if (arg == "--kv=basic") {
      parsed.kv = true;
    } else if (arg == "--backend") {
      if (next.empty()) fail_usage("--backend needs a name. {}", kModelGenerateUsage);
      parsed.backend = next;
      ++i;
    } else if (arg.starts_with("--backend=")) {
      parsed.backend = arg.substr(arg.find('=') + 1);
    } else if (arg == "-h" || arg == "--help") {
      write_stdout(fmt::format("{}\n", kModelGenerateUsage));
      throw Exit{0};
    } else if (arg.starts_with("--")) {
      fail_usage("unknown option {}. {}", printable(arg), kModelGenerateUsage);
    } else {
      positional.push_back(arg);
    }
  }
  if (positional.empty() || positional.size() > 3) fail_usage("{}", kModelGenerateUsage);
  parsed.path = positional[0];
  if (positional.size() > 1) parsed.prompt = positional[1];
  if (positional.size() > 2) {
    const std::optional<int64_t> count = parse_int(positional[2]);
    if (!count || *count < 0 || *count > kMaxNewTokens) {
      fail_usage("max_new_tokens must be a number from 0 to {}, not \"{}\"", kMaxNewTokens, printable(positional[2]));
    }
    parsed.max_new_tokens = static_cast<int32_t>(*count);
  }
  return parsed;
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
      "  inferno generate model.gguf --file prompt.txt -n 500   a prompt from a file (- for standard input)");
  sub->add_option("model_or_prompt", command->first, "a .gguf file; otherwise it is the prompt of the built-in model");
  sub->add_option("prompt", command->second, "the text to continue (default: Once upon a time)");
  sub->add_option("-n", command->max_new, "tokens to make at most")
      ->check(CLI::Range(int64_t{0}, kMaxNewTokens))
      ->capture_default_str();
  sub->add_option("--kv", command->kv, "off: recompute everything for every token")
      ->check(CLI::IsMember({"off", "basic"}))
      ->capture_default_str();
  SamplingSettings& sampling = command->request.sampling;
  sub->add_option("--temp", sampling.temperature, "temperature; 0 always takes the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  sub->add_option("--top-k", sampling.top_k, "draw from the k likeliest tokens (0: all)")
      ->check(CLI::Range(0, INT32_MAX));
  sub->add_option("--top-p", sampling.top_p, "draw from the likeliest tokens that hold this probability")
      ->check(CLI::Range(0.0, 1.0));
  sub->add_option("--min-p", sampling.min_p, "drop tokens below this share of the likeliest")
      ->check(CLI::Range(0.0, 1.0));
  sub->add_option("--repeat-penalty", sampling.repeat_penalty, "above 1: make the latest 64 tokens less likely")
      ->check(CLI::Range(0.01, 100.0));
  sub->add_option("--seed", sampling.seed, "the same seed gives the same text");
  sub->add_option("--stop", command->request.stop_strings,
                  "end where this text would appear (may be given several times)");
  sub->add_flag("--ignore-end", command->ignore_end, "do not stop at the model's end tokens");
  sub->add_flag("--chat", command->chat, "wrap the prompt in the model's chat format");
  sub->add_option("--chat-template", command->chat_template,
                  "a chat format instead of the model's own: a file with a Jinja template, or one of " +
                      known_template_names() + "; implies --chat");
  sub->add_option("--file", command->prompt_file, "read the prompt from a file, or - for standard input");
  sub->add_option("--ids", command->ids, "the prompt as token ids, for example 1,2,3");
  sub->add_flag("--json", command->json, "one line of JSON instead of text");
  command->engine.add_to(*sub);
  command->instruments.add_to(*sub);
  sub->callback([command] { command->run(); });
}

int model_generate(std::span<const char* const> args) {
  const ModelGenerateArgs parsed = parse_model_generate(args);
  const GgufFile file = GgufFile::open(parsed.path);
  LoadOptions options;
  options.backend = parsed.backend;
  options.max_sequences = 1;
  show_loading(options);
  Engine engine(file, engine_options(options));
  const Tokenizer* tokenizer = engine.tokenizer();
  if (tokenizer == nullptr)
    fail("\"{}\" has no vocabulary, or this build no tokenizers: use inferno generate --ids", parsed.path);
  write_stdout(fmt::format("backend: {}\nkv cache: {}\n", engine.backend().name(), parsed.kv ? "basic" : "off"));
  const std::atomic<bool>& interrupted = watch_interrupt();
  write_stdout(parsed.prompt);
  Request request{.prompt = encode_prompt(*tokenizer, parsed.prompt), .max_new_tokens = parsed.max_new_tokens};
  request.recompute = !parsed.kv;
  request.on_token = [&](const TokenEvent& event) {
    write_stdout(event.text);
    flush_stdout();
    return true;
  };
  const RequestResult result = generate(engine, std::move(request), &interrupted);
  write_stdout(fmt::format("\n{}", format_metrics(result.metrics)));
  flush_stdout();
  if (result.samples.front().reason == StopReason::cancelled) throw Exit{.signal = SIGINT};
  return 0;
}

}  // namespace inferno::cli
