// inferno serve: a model as a service.
#include "serve/server.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>

#include "api/load_options.h"
#include "base/error.h"
#include "base/file.h"
#include "base/platform.h"
#include "cli/cli.h"
#include "engine/builtin_model.h"
#include "serve/access.h"

namespace inferno::cli {
namespace {

constexpr uint64_t kMaxKeyFileBytes = uint64_t{1} << 20;

struct ServeCommand {
  EngineFlags engine;
  std::string model;
  std::string alias;
  std::string key_file;
  int32_t parallel = 8;
  int64_t drain_seconds = 30;
  serve::ServerOptions server;

  [[nodiscard]] std::vector<std::string> keys() const;
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

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

void ServeCommand::run() {
  server.keys = keys();
  server.drain_time = std::chrono::seconds(drain_seconds);
  server.handle_signals = true;
  server.model = !alias.empty() ? alias : model.empty() ? "builtin" : std::filesystem::path(model).stem().string();
  server.log = [](std::string_view line) { fmt::print(stderr, "{} {}\n", utc_now(), line); };
  platform::raise_descriptor_limit();

  LoadOptions load = engine.load_options();
  load.max_sequences = parallel;
  Engine instance(open_model(model), engine_options(load));
  serve::Server service(instance, server);
  // An address with colons is written in brackets in a URL.
  const bool brackets = server.host.find(':') != std::string::npos;
  write_stdout(fmt::format("inferno serves \"{}\" on http://{}{}{}:{}/v1\n", server.model, brackets ? "[" : "",
                           server.host, brackets ? "]" : "", service.port()));
  flush_stdout();
  service.run();
}

}  // namespace

void add_serve(CLI::App& app) {
  auto command = std::make_shared<ServeCommand>();
  CLI::App* sub = app.add_subcommand("serve", "answer requests over HTTP, in the form of OpenAI's API");
  sub->footer(
      "Examples:\n"
      "  inferno serve model.gguf                                      on 127.0.0.1:8080, for this machine\n"
      "  inferno serve model.gguf --host 0.0.0.0 --api-key-file keys   for others; INFERNO_API_KEY is a key, too\n"
      "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\":\"The sea was\",\"max_tokens\":20}'");
  sub->add_option("model", command->model, "a .gguf file (default: the built-in model)");
  sub->add_option("--host", command->server.host, "address to listen on")->default_str("127.0.0.1");
  sub->add_option("--port", command->server.port, "port to listen on (0: one that is free)")->default_str("8080");
  sub->add_option("--api-key-file", command->key_file, "file with one API key per line");
  sub->add_flag("--no-auth", command->server.no_auth, "serve other machines without an API key");
  sub->add_option("--alias", command->alias, "name of the model for clients (default: the file's)");
  sub->add_option("--parallel", command->parallel, "texts computed at once; more wait")
      ->check(CLI::Range(1, 1024))
      ->default_str("8");
  sub->add_option("--max-queue", command->server.max_queue, "texts that run or wait; more are refused with 429")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->default_str("512");
  sub->add_option("--drain-seconds", command->drain_seconds, "for running requests when the server is asked to end")
      ->check(CLI::Range(int64_t{0}, int64_t{86'400}))
      ->default_str("30");
  command->engine.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
