// inferno serve: a model as a service.
#include "serve/server.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/platform.h"
#include "cli/chat_template.h"
#include "cli/cli.h"
#include "cli/ranks.h"
#include "cli/serve_models.h"
#include "cli/speculation_flags.h"
#include "comm/world.h"
#include "serve/access.h"
#include "serve/log_writer.h"
#include "serve/request_log.h"

namespace inferno::cli {
namespace {

constexpr uint64_t kMaxKeyFileBytes = uint64_t{1} << 20;

struct ServeCommand {
  EngineFlags engine;
  SpeculationFlags speculation;
  std::vector<std::string> models;
  std::string alias;
  std::string key_file;
  std::string log_format = "text";
  std::string chat_template;
  int32_t parallel = 8;
  int64_t drain_seconds = 30;
  int64_t unload_seconds = 0;
  bool measure = false;
  bool no_think = false;
  std::string cache_folder;
  uint64_t cache_bytes = uint64_t{4} << 30;
  serve::ServerOptions server;

  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::vector<serve::ModelSource> sources();
  void run();
};

std::vector<std::string> ServeCommand::keys() const {
  std::vector<std::string> keys;
  if (!key_file.empty()) {
    keys = serve::parse_keys(read_text(key_file, kMaxKeyFileBytes));
    if (keys.empty()) fail_usage("there is no key in the file of `api_key_file`");
  }
  if (const char* key = std::getenv("INFERNO_API_KEY"); key != nullptr && *key != '\0') {
    for (std::string& one : serve::parse_keys(key)) keys.push_back(std::move(one));
  }
  return keys;
}

std::vector<serve::ModelSource> ServeCommand::sources() {
  std::vector<NamedModel> named;
  for (const std::string& argument : models) named.push_back(parse_named_model(argument));
  if (named.empty()) named.push_back(parse_named_model(""));
  if (named.size() > 1 && world().size() > 1) fail_usage("over several ranks one model is served; name one");
  if (!alias.empty()) {
    if (named.size() > 1) fail_usage("`alias` is for one model; name several NAME=PATH");
    named.front().name = alias;
  }
  ModelSettings settings{.load = engine.load_options(),
                         .chat_template = read_chat_template(chat_template),
                         .measure = measure,
                         .thinks = !no_think,
                         .cache_folder = cache_folder,
                         .cache_bytes = cache_bytes};
  settings.load.max_sequences = parallel;
  settings.load.draft = speculation.draft;
  if (named.size() > 1 && !speculation.draft.empty()) fail_usage("`draft` is for one model");
  server.lookup = speculation.lookup;
  server.max_draft = speculation.max_draft;
  std::vector<serve::ModelSource> sources;
  if (named.size() == 1) {
    sources.push_back(loaded_model(named.front(), settings));
    return sources;
  }
  for (const NamedModel& model : named) sources.push_back(model_on_demand(model, settings));
  // Of a device's memory only loading tells.
  if (server.models_memory == 0 && !sources.front().facts.on_device) {
    server.models_memory = available_memory().value_or(0);
  }
  return sources;
}

// "a", "b"
std::string names_of(const std::vector<serve::ModelSource>& sources) {
  std::string names;
  for (const serve::ModelSource& source : sources) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", source.name);
  }
  return names;
}

void ServeCommand::run() {
  server.keys = keys();
  server.drain_time = std::chrono::seconds(drain_seconds);
  server.unload_idle = std::chrono::seconds(unload_seconds);
  server.handle_signals = true;
  server.log_json = log_format == "json";
  serve::LogWriter log([](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  server.log = [&log, json = server.log_json](std::string_view line) {
    log.add((json ? "" : serve::utc_time(serve::unix_now()) + " ") + std::string(line));
  };
  platform::raise_descriptor_limit();
  platform::return_large_blocks();

  std::vector<serve::ModelSource> served = sources();
  const std::string names = names_of(served);
  serve::Server service(std::move(served), server);
  // An address with colons is written in brackets in a URL.
  const bool brackets = server.host.find(':') != std::string::npos;
  write_stdout(fmt::format("inferno serves {} on http{}://{}{}{}:{}/v1\n", names, server.tls_cert.empty() ? "" : "s",
                           brackets ? "[" : "", server.host, brackets ? "]" : "", service.port()));
  flush_stdout();
  service.run();
  check_ranks();
}

}  // namespace

void add_serve(CLI::App& app) {
  auto command = std::make_shared<ServeCommand>();
  CLI::App* sub = app.add_subcommand(
      "serve", "answer requests over HTTP as OpenAI, Anthropic and Ollama do, with a page for people");
  sub->footer(
      "Examples:\n"
      "  inferno serve model.gguf                                      on 127.0.0.1:8080, for this machine\n"
      "  inferno serve small.gguf big=/models/big.gguf                 two, by the names small and big\n"
      "  inferno serve model.gguf --host 0.0.0.0 --api-key-file keys   for others; INFERNO_API_KEY is a key, too\n"
      "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\":\"The sea was\",\"max_tokens\":20}'");
  sub->add_option("models", command->models,
                  "files (.gguf), or NAME=FILE; several are loaded on demand (default: the built-in model)");
  sub->add_option("--host", command->server.host, "address to listen on")->default_str("127.0.0.1");
  sub->add_option("--port", command->server.port, "port to listen on (0: one that is free)")->default_str("8080");
  sub->add_option("--api-key-file", command->key_file, "file with one API key per line");
  sub->add_option("--cors-origin", command->server.cors_origins,
                  "origins whose pages may use the server, such as https://example.org; localhost, or * for all")
      ->allow_extra_args(false);
  sub->add_option("--tls-cert", command->server.tls_cert, "certificates in PEM form: speak TLS (with --tls-key)");
  sub->add_option("--tls-key", command->server.tls_key, "the certificate's private key in PEM form");
  sub->add_flag("--no-auth", command->server.no_auth, "serve other machines without an API key");
  sub->add_option("--alias", command->alias, "name of the model for clients (default: the file's)");
  sub->add_flag("--any-model", command->server.any_model, "let clients name any model: there is only this one");
  sub->add_option("--chat-template", command->chat_template, "a known format (chatml, llama3, ...) or a file");
  sub->add_flag("--no-think", command->no_think,
                "ask the template for answers without thinking, unless a request says so");
  sub->add_option("--seed", command->server.seed, "of requests that name none (default: a random one for each)");
  sub->add_option("--parallel", command->parallel, "texts computed at once; more wait")
      ->check(CLI::Range(1, 1024))
      ->default_str("8");
  sub->add_option("--max-queue", command->server.max_queue, "texts that run or wait; more are refused with 429")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->default_str("512");
  sub->add_option("--max-queue-per-key", command->server.max_queue_per_key,
                  "the same of one API key (0: no limit of its own)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->default_str("0");
  sub->add_option("--log-format", command->log_format, "of the line per request on standard error: text, json")
      ->check(CLI::IsMember({"text", "json"}))
      ->default_str("text");
  sub->add_option("--drain-seconds", command->drain_seconds, "for running requests when the server is asked to end")
      ->check(CLI::Range(int64_t{0}, int64_t{86'400}))
      ->default_str("30");
  sub->add_option("--models-memory", command->server.models_memory,
                  "of several models, for those that are loaded, such as 16GB (default: what is free at the start)")
      ->transform(CLI::AsSizeValue(false));
  sub->add_option("--unload-idle-seconds", command->unload_seconds, "unload a model that nobody used for so long")
      ->check(CLI::Range(int64_t{0}, int64_t{86'400} * 365))
      ->default_str("0 (never)");
  sub->add_option("--cache-dir", command->cache_folder, "keep pages of prompts in this folder for the next start");
  sub->add_option("--cache-size", command->cache_bytes, "of the files in it, least recently used ones go")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("4 GiB");
  sub->add_flag("--profile", command->measure, "measure where the time goes, for /debug/profile and /metrics");
  sub->add_flag("--llama-metrics", command->server.llama_metrics, "/metrics has the names of llama-server, too");
  sub->add_flag("--show-prompts", command->server.show_prompts,
                "answers tell the prompt made of the request, as with `verbose`");
  command->speculation.add_to(*sub);
  command->engine.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
