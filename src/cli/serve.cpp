// inferno serve: a model as a service.
#include "serve/server.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "api/load_options.h"
#include "base/error.h"
#include "base/file.h"
#include "base/platform.h"
#include "cli/chat_template.h"
#include "cli/cli.h"
#include "engine/builtin_model.h"
#include "engine/chat.h"
#include "profile/profiling_backend.h"
#include "serve/access.h"
#include "serve/log_writer.h"
#include "serve/request_log.h"

namespace inferno::cli {
namespace {

constexpr uint64_t kMaxKeyFileBytes = uint64_t{1} << 20;

struct ServeCommand {
  EngineFlags engine;
  std::string model;
  std::string alias;
  std::string key_file;
  std::string log_format = "text";
  std::string chat_template;
  int32_t parallel = 8;
  int64_t drain_seconds = 30;
  bool measure = false;
  serve::ServerOptions server;

  [[nodiscard]] std::vector<std::string> keys() const;
  std::optional<Profile> profile;  // outlives the engine, which fills it

  void watch(EngineOptions& options);
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

// The engine's steps are timed from now on; what is seen of them are the profile's figures between two steps.
void ServeCommand::watch(EngineOptions& options) {
  options.decorate = [this](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
    profile.emplace(*backend);
    auto watched = std::make_unique<ProfilingBackend>(std::move(backend), &*profile, nullptr);
    const auto share = [this, watching = watched.get()](Phase phase) {
      const auto held = watching->hold();
      const PhaseTotals& totals = profile->phase(phase);
      return totals.steps == 0 ? 0 : totals.least_us() / totals.wall_us();
    };
    server.profile = {.json =
                          [this, watching = watched.get()] {
                            const auto held = watching->hold();
                            return profile->json();
                          },
                      .prefill_share = [share] { return share(Phase::prefill); },
                      .decode_share = [share] { return share(Phase::decode); }};
    return watched;
  };
}

void ServeCommand::run() {
  server.keys = keys();
  server.drain_time = std::chrono::seconds(drain_seconds);
  server.handle_signals = true;
  server.model = !alias.empty() ? alias : model.empty() ? "builtin" : std::filesystem::path(model).stem().string();
  server.log_json = log_format == "json";
  serve::LogWriter log([](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  server.log = [&log, json = server.log_json](std::string_view line) {
    log.add((json ? "" : serve::utc_time(serve::unix_now()) + " ") + std::string(line));
  };
  platform::raise_descriptor_limit();

  LoadOptions load = engine.load_options();
  load.max_sequences = parallel;
  const GgufFile file = open_model(model);
  const std::string other = read_chat_template(chat_template);
  std::optional<FileWithTemplate> with_template;
  if (!other.empty()) with_template.emplace(file, other);
  EngineOptions options = engine_options(load);
  if (measure) watch(options);
  Engine instance(with_template ? static_cast<const ModelFile&>(*with_template) : file, options);
  // A template that does not compile is found now, not by the first client.
  if (with_template && instance.tokenizer() != nullptr) (void)ChatFormat::from_tokenizer(*instance.tokenizer());
  serve::Server service(instance, server);
  // An address with colons is written in brackets in a URL.
  const bool brackets = server.host.find(':') != std::string::npos;
  write_stdout(fmt::format("inferno serves \"{}\" on http{}://{}{}{}:{}/v1\n", server.model,
                           server.tls_cert.empty() ? "" : "s", brackets ? "[" : "", server.host, brackets ? "]" : "",
                           service.port()));
  flush_stdout();
  service.run();
}

}  // namespace

void add_serve(CLI::App& app) {
  auto command = std::make_shared<ServeCommand>();
  CLI::App* sub = app.add_subcommand(
      "serve", "answer requests over HTTP as OpenAI, Anthropic and Ollama do, with a page for people");
  sub->footer(
      "Examples:\n"
      "  inferno serve model.gguf                                      on 127.0.0.1:8080, for this machine\n"
      "  inferno serve model.gguf --host 0.0.0.0 --api-key-file keys   for others; INFERNO_API_KEY is a key, too\n"
      "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\":\"The sea was\",\"max_tokens\":20}'");
  sub->add_option("model", command->model, "a .gguf file (default: the built-in model)");
  sub->add_option("--host", command->server.host, "address to listen on")->default_str("127.0.0.1");
  sub->add_option("--port", command->server.port, "port to listen on (0: one that is free)")->default_str("8080");
  sub->add_option("--api-key-file", command->key_file, "file with one API key per line");
  sub->add_option("--tls-cert", command->server.tls_cert, "certificates in PEM form: speak TLS (with --tls-key)");
  sub->add_option("--tls-key", command->server.tls_key, "the certificate's private key in PEM form");
  sub->add_flag("--no-auth", command->server.no_auth, "serve other machines without an API key");
  sub->add_option("--alias", command->alias, "name of the model for clients (default: the file's)");
  sub->add_option("--chat-template", command->chat_template, "a known format (chatml, llama3, ...) or a file");
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
  sub->add_flag("--profile", command->measure, "measure where the time goes, for /debug/profile and /metrics");
  command->engine.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
