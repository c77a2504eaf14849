// model-generate, the second name of the program: a text with or without a cache, and how fast it was made.
#include <fmt/core.h>

#include <csignal>

#include "api/load_options.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "engine/prompt.h"

namespace inferno::cli {
namespace {

constexpr int64_t kMaxNewTokens = int64_t{1} << 24;

struct ModelGenerateArgs {
  std::string backend;
  std::string path;
  std::string prompt = "Once upon a time";
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

int model_generate(std::span<const char* const> args) {
  const ModelGenerateArgs parsed = parse_model_generate(args);
  const AnyModelFile file = AnyModelFile::open(parsed.path);
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
