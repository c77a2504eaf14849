// What the subcommands share: the options of a model, and writing to standard output.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "inferno/llm.h"
#include "threading/thread_plan.h"

namespace inferno::cli {

// One function per subcommand, each in its own file: adds the subcommand, whose callback does the work.
void add_bench(CLI::App& app);
void add_chat(CLI::App& app);
void add_convert(CLI::App& app);
void add_documentation(CLI::App& app);
void add_generate(CLI::App& app);
void add_imatrix(CLI::App& app);
void add_inspect(CLI::App& app);
void add_logits(CLI::App& app);
void add_machine(CLI::App& app);
void add_embed(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_list(CLI::App& app);
void add_plan(CLI::App& app);
void add_pull(CLI::App& app);
void add_quantize(CLI::App& app);
void add_remove(CLI::App& app);
void add_serve(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_verify(CLI::App& app);

// --offline for every subcommand that takes a model, and names of a hub where a path is expected. After the others.
void add_hub_names(CLI::App& app);

// The second name of the program; returns the exit code.
int model_generate(std::span<const char* const> args);

// What a subcommand's callback throws to end the program with an exit code, or by a signal, and nothing more to say.
struct Exit {
  int code = 0;
  int signal = 0;
};

// --backend, --threads, --affinity, --numa, --ctx, --kv-type, --kv-memory, --max-token-latency, --fused, --split,
// --pipeline, --wire, --quiet.
struct EngineFlags {
  std::string backend;
  std::string threads;  // empty: INFERNO_THREADS, OMP_NUM_THREADS, or all that pay off
  std::string affinity;
  std::string numa;
  int64_t context = 0;
  std::string kv_type;
  uint64_t kv_memory = 0;
  double max_token_latency_ms = 0;
  std::string fused = "on";
  std::vector<int32_t> split;
  int32_t pipeline = 1;
  std::string wire;
  bool quiet = false;

  void add_to(CLI::App& command);
  void add_thread_options(CLI::App& command);
  // Values that make no sense are usage Errors.
  [[nodiscard]] LoadOptions load_options() const;
  [[nodiscard]] LoadOptions load_options(int thread_count) const;
  [[nodiscard]] EngineOptions options() const;
  // --threads is a list where a command measures several: its counts, one 0 (the default) when it was not given.
  [[nodiscard]] std::vector<int> thread_counts() const;
  [[nodiscard]] EngineOptions options_for(int thread_count) const;
  // What --threads, --affinity, --numa and the environment ask for.
  [[nodiscard]] ThreadRequest thread_request() const;
};

// What is worth seeing while an engine is made goes to stderr: the device, and a progress bar.
void show_loading(LoadOptions& options);
// Whether a first argument is meant as a model: it exists, ends in .gguf, or is one word that looks like a path or a
// name (ORG/NAME, qwen3:0.6b). Otherwise it is the prompt of the built-in model.
[[nodiscard]] bool looks_like_model(const std::string& argument);
// "1,2,3" or "1 2 3" -> ids; anything else is a usage Error.
[[nodiscard]] std::vector<int32_t> parse_ids(std::string_view text);
// "inferno: error: message" on stderr, on one line, with the names of flags.
void report_error(std::string_view message);
// Writes all of it, or throws an Error that says why not (a full disk); Exit, silently, when the reader has gone.
void write_stdout(std::string_view text);
void flush_stdout();

}  // namespace inferno::cli
