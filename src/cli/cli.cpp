#include "cli/cli.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api/load_options.h"
#include "base/error.h"
#include "base/standard_streams.h"
#include "base/text.h"
#include "cli/flag_names.h"
#include "cli/progress_bar.h"

namespace inferno::cli {

void EngineFlags::add_to(CLI::App& command) {
  command.add_option("--backend", backend, "what computes: scalar, simd, parallel, cuda, metal")
      ->default_str(std::string(default_backend_name()));
  add_thread_options(command);
  command.add_option("-c,--ctx", context, "positions of context (0: the model's own, at most 4096)")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}));
  command.add_option("--kv-type", kv_type, "type of the KV cache: f32, f16, bf16, q8_0 (default: the backend's)");
  command
      .add_option("--kv-memory", kv_memory, "memory for the KV cache, such as 2GB (default: what the context needs)")
      ->transform(CLI::AsSizeValue(false));
  command.add_option("--max-token-latency", max_token_latency_ms,
                     "milliseconds between tokens that prompts of others may cause (0: 100 on a CPU, 25 on a GPU, "
                     "more where tokens alone take most of it)");
  command.add_option("--fused", fused, "off: run fused ops as the primitives that define them")
      ->check(CLI::IsMember({"on", "off"}));
  command
      .add_option("--split", split,
                  "under mpirun: sizes of the ranks' parts of the model, such as 3,1 (default: alike)")
      ->delimiter(',');
  command
      .add_option("--pipeline", pipeline,
                  "under mpirun: stages that the layers are divided among; ranks of a stage share each layer")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_option("--wire", wire, "under mpirun: what sums over ranks are sent as: f32, bf16");
  command.add_flag("--quiet", quiet, "no progress, no metrics");
}

void EngineFlags::add_thread_options(CLI::App& command) {
  command.add_option("-t,--threads", threads, "CPU threads (default: $INFERNO_THREADS, else all that pay off)");
  command.add_option("--affinity", affinity,
                     "where threads run: auto, none, compact, spread, or a list of CPUs such as 0-3,8");
  command.add_option("--numa", numa, "on several memory nodes: distribute, isolate, numactl");
}

ThreadRequest EngineFlags::thread_request() const {
  ThreadRequest request;
  if (!threads.empty()) {
    request.threads = parse_thread_count(threads, "`threads`");
    request.threads_origin = "`threads`";
  }
  if (!affinity.empty()) parse_affinity(affinity, request);
  if (!numa.empty()) parse_numa(numa, request);
  apply_environment(request, [](const char* name) -> const char* { return std::getenv(name); });
  return request;
}

std::vector<int> EngineFlags::thread_counts() const {
  if (threads.empty()) return {0};
  std::vector<int> counts;
  for (std::string_view rest = threads;;) {
    const size_t comma = rest.find(',');
    counts.push_back(parse_thread_count(rest.substr(0, comma), "`threads`"));
    if (comma == std::string_view::npos) return counts;
    rest.remove_prefix(comma + 1);
  }
}

LoadOptions EngineFlags::load_options() const {
  return load_options(threads.empty() ? 0 : parse_thread_count(threads, "`threads`"));
}

LoadOptions EngineFlags::load_options(int thread_count) const {
  LoadOptions options;
  options.backend = backend;
  options.threads = thread_count;
  options.affinity = affinity;
  options.numa = numa;
  options.fused = fused == "on";
  options.split = split;
  options.pipeline = pipeline;
  options.wire = wire;
  options.context = static_cast<int32_t>(context);
  options.kv_type = kv_type;
  options.kv_memory = kv_memory;
  options.max_sequences = 1;
  options.max_token_latency_ms = max_token_latency_ms;
  if (!quiet) show_loading(options);
  return options;
}

EngineOptions EngineFlags::options() const {
  return engine_options(load_options());
}

EngineOptions EngineFlags::options_for(int thread_count) const {
  return engine_options(load_options(thread_count));
}

void show_loading(LoadOptions& options) {
  options.on_progress = draw_progress("loading", false);
  options.on_info = [](const std::string& line) { print_stderr("{}\n", line); };
}

bool looks_like_model(const std::string& argument) {
  struct stat status{};
  if (argument.ends_with(".gguf") || ::stat(argument.c_str(), &status) == 0) return true;
  if (argument.find_first_of(" \t\n") != std::string::npos) return false;
  // One word with a separator inside: a path, a name with a tag, a file's extension.
  const size_t separator = argument.find_first_of("/:.\\");
  return separator != std::string::npos && argument.find_first_not_of("/:.\\!?,;\"'", separator) != std::string::npos;
}

std::vector<int32_t> parse_ids(std::string_view text) {
  std::vector<int32_t> ids;
  constexpr std::string_view kSeparators = ", \t\r\n";
  while (true) {
    const size_t begin = text.find_first_not_of(kSeparators);
    if (begin == std::string_view::npos) return ids;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kSeparators));
    const std::optional<int64_t> id = parse_int(word);
    if (!id || *id < 0 || *id > INT32_MAX)
      fail_usage("\"{}\" is not a token id (a list looks like 1,2,3)", printable(word));
    ids.push_back(static_cast<int32_t>(*id));
    text.remove_prefix(word.size());
  }
}

void report_error(std::string_view message) {
  std::string line = with_flags(message);
  std::replace(line.begin(), line.end(), '\n', ' ');
  print_stderr("inferno: error: {}\n", line);
}

namespace {

// A reader that has seen enough (head) is no failure of anybody's.
[[noreturn]] void fail_stdout() {
  if (errno == EPIPE) throw Exit{.signal = SIGPIPE};
  fail("cannot write to standard output: {}", std::strerror(errno));
}

}  // namespace

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail_stdout();
}

void flush_stdout() {
  if (std::fflush(stdout) != 0) fail_stdout();
}

}  // namespace inferno::cli
