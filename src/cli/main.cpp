// The command line: one program, two names, one file per subcommand.
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/standard_streams.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/flag_names.h"
#include "cli/ranks.h"
#include "cli/signals.h"
#include "comm/rank_failure.h"

namespace inferno::cli {
namespace {

constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

// A word that is no subcommand, with the one that was probably meant.
void check_subcommand(const CLI::App& app, const std::string& word) {
  if (word.starts_with('-')) return;
  std::vector<std::string> names;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  if (std::ranges::find(names, word) != names.end()) return;
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  const std::string_view meant = nearest(word, candidates);
  fail_usage("there is no subcommand \"{}\"{} (see inferno --help)", printable(word, 40),
             meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

int run_inferno(int argc, char** argv) {
  CLI::App app{
      "inferno runs large language models from GGUF files.\n\n"
      "  inferno generate \"Once upon a time\"            the built-in model continues a text\n"
      "  inferno chat model.gguf                        a conversation with a model of yours\n"
      "  inferno serve model.gguf                       OpenAI's API on http://127.0.0.1:8080\n"
      "  inferno inspect model.gguf                     what is in a file\n"
      "  inferno bench model.gguf --threads 1,2         how fast it runs here\n"
      "  inferno machine                                what this machine can do\n",
      "inferno"};
  app.set_version_flag("--version", "inferno " INFERNO_VERSION);
  app.require_subcommand(1);
  // Wrappers put defaults first.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.failure_message([](const CLI::App* command, const CLI::Error& error) {
    return fmt::format("inferno: error: {} (see {} --help)\n", error.what(), command->get_name());
  });
  add_chat(app);
  add_generate(app);
  add_inspect(app);
  add_tokenize(app);
  add_quantize(app);
  add_convert(app);
  add_imatrix(app);
  add_embed(app);
  add_perplexity(app);
  add_logits(app);
  add_plan(app);
  add_verify(app);
  add_bench(app);
  add_serve(app);
  add_machine(app);
  add_pull(app);
  add_list(app);
  add_remove(app);
  add_hub_names(app);
  add_documentation(app);
  if (argc < 2) {
    write_stdout(app.help());
    return kOk;
  }
  check_subcommand(app, argv[1]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version come as errors with exit code 0; every other one is wrong usage.
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  return kOk;
}

int guarded(int argc, char** argv) {
  open_standard_streams();
  clean_up_on_signals();
  try {
    // A reader that goes away shows as a failed write, with a message, instead of a silent death.
    std::signal(SIGPIPE, SIG_IGN);
    check_log_environment();
    set_log_sink([](LogLevel level, std::string_view text) { log_to_stderr(level, with_flags(text)); });
    if (int code = 0; joined_as_follower(code)) return code;
    const std::string_view path = argc > 0 ? argv[0] : "";
    const std::string_view name = path.substr(path.find_last_of('/') + 1);
    int code = kOk;
    if (name == "model-generate") {
      code = model_generate(std::vector<const char*>(argv + 1, argv + argc));
    } else {
      code = run_inferno(argc, argv);
    }
    flush_stdout();
    return code;
  } catch (const Exit& exit) {
    if (exit.signal != 0) {
      leave_ranks();
      end_by(exit.signal);
    }
    return exit.code;
  } catch (const RankFailure& error) {
    if (may_tell()) report_error(error.what());
    return kFailed;
  } catch (const Error& error) {
    report_error(error.what());
    return error.kind() == Error::Kind::usage ? kUsage : kFailed;
  } catch (const std::bad_alloc&) {
    report_error("out of memory; use a smaller model, type or `context`");
  } catch (const std::exception& error) {
    report_error(error.what());
  }
  return kFailed;
}

}  // namespace
}  // namespace inferno::cli

int main(int argc, char** argv) {
  const int code = inferno::cli::guarded(argc, argv);
  inferno::cli::leave_ranks();
  return code;
}
