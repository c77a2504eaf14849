// Decode, prefill and batch decode of random models on the GPU: no model file, no tokenizer.
//
// Times are wall clock around whole steps as the decoder runs them: upload of the batch, the step, download of the
// drawn tokens. The share of the read bandwidth counts the weights alone.
//
//   cuda_bench [decode|sampling|prefill|batch|mixed|large|ops|profile] ... [TYPE] ... [STREAMS] ...   (default: all but
//   the last two, all types of weights, and batches of 1 to 128 streams)
#include <cuda_profiler_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/cuda/cuda.h"
#include "backend/step_times.h"
#include "base/error.h"
#include "synthetic/model_run.h"
#include "synthetic/synthetic_model.h"

namespace inferno {
namespace {

constexpr double kReadBytesPerSecond = 4.2e12;  // measured on an H200

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr int32_t kMostStreams = 128;
constexpr const char* kTypes[] = {"BF16", "F16", "Q8_0", "Q4_K_M", "Q4_0"};
// One of plain weights, one of 8 bits, one of a mix.
constexpr const char* kFewTypes[] = {"BF16", "Q8_0", "Q4_K_M"};
constexpr const char* kLargeTypes[] = {"Q8_0", "Q4_K_M"};

// Those of `types` that were asked for; all, if none was.
std::vector<std::string> asked_types;
std::vector<int32_t> asked_streams;
template <size_t kCount>
std::vector<const char*> chosen(const char* const (&types)[kCount]) {
  std::vector<const char*> result;
  for (const char* type : types) {
    if (asked_types.empty() || std::find(asked_types.begin(), asked_types.end(), type) != asked_types.end()) {
      result.push_back(type);
    }
  }
  return result;
}

SyntheticModel small_model(const char* type, uint32_t layers = 28) {
  ModelShape shape = find_model_shape("qwen3-0.6b");
  shape.layers = layers;
  return {shape, type};
}

// Bytes of the weights that a decode step reads.
uint64_t read_bytes(const Model& model) {
  return model.weight_bytes() - (&model.head() == &model.embedding() ? 0 : model.embedding().bytes());
}

std::vector<int32_t> prompt_of(int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((i * 7919 + 13) % 151936);
  return tokens;
}

// Median tokens per second of decode steps of `sequences` sequences.
double decode_speed(ModelRun& model, int32_t sequences, int32_t prompt, int32_t steps) {
  model.reset();
  for (int32_t s = 0; s < sequences; ++s) model.prefill(s, prompt_of(prompt));
  std::vector<double> times;
  for (int32_t i = 0; i < steps; ++i) {
    const auto begin = Clock::now();
    model.decode(sequences);
    times.push_back(seconds_since(begin));
  }
  std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
  return sequences / times[static_cast<size_t>(steps / 2)];
}

void print_decode(const char* shape, const char* kind, int32_t depth, double speed, uint64_t bytes) {
  fmt::print("decode   {:5} {:7} depth {:5}   {:9.0f} tok/s  {:7.1f} us  {:5.1f} % of read bandwidth\n", shape, kind,
             depth, speed, 1e6 / speed, 100 * speed * static_cast<double>(bytes) / kReadBytesPerSecond);
}

void bench_decode(Backend& backend) {
  for (const char* type : chosen(kTypes)) {
    ModelRun model(backend, small_model(type), {.context = 4352});
    const uint64_t bytes = read_bytes(model.model());
    print_decode("0.6B", type, 16, decode_speed(model, 1, 16, 128), bytes);
    if (type == kTypes[0] || type == kTypes[2] || type == kTypes[3]) {
      model.reset();
      for (int i = 0; i < 8; ++i) model.prefill(0, prompt_of(512));
      std::vector<double> times;
      for (int i = 0; i < 64; ++i) {
        const auto begin = Clock::now();
        model.decode(1);
        times.push_back(seconds_since(begin));
      }
      std::sort(times.begin(), times.end());
      print_decode("0.6B", type, 4096, 1 / times[32], bytes);
    }
  }
}

void bench_sampling(Backend& backend) {
  ModelRun model(backend, small_model("Q8_0"), {});
  model.set_sampling({.temperature = 0.8F, .top_k = 40, .top_p = 0.95F, .min_p = 0.05F, .seed = 1});
  fmt::print("decode   0.6B  Q8_0, sampled (top-k 40, top-p)  {:9.0f} tok/s\n", decode_speed(model, 1, 16, 128));
  model.set_sampling({.temperature = 0.8F, .top_p = 0.95F, .seed = 1});
  fmt::print("decode   0.6B  Q8_0, sampled (top-p alone)      {:9.0f} tok/s\n", decode_speed(model, 1, 16, 128));
}

void bench_prefill(Backend& backend) {
  for (const char* type : chosen(kTypes)) {
    for (const auto& [count, chunk] : {std::pair(4096, 4096), std::pair(4096, 512), std::pair(512, 512)}) {
      ModelRun model(backend, small_model(type), {.context = 4096, .max_tokens = chunk});
      std::vector<double> times;
      const std::vector<int32_t> prompt = prompt_of(count);
      const int runs = count > 512 ? 6 : 24;
      for (int run = 0; run < runs; ++run) {
        model.reset();
        const auto begin = Clock::now();
        for (int32_t at = 0; at < count; at += chunk) {
          model.prefill(0, std::span(prompt).subspan(static_cast<size_t>(at), static_cast<size_t>(chunk)),
                        at + chunk >= count);
        }
        times.push_back(seconds_since(begin));
      }
      std::sort(times.begin(), times.end());
      const double median = times[times.size() / 2 - 1];
      fmt::print("prefill  0.6B  {:7} {} tokens, steps of {:4}   {:9.0f} tok/s  {:7.2f} ms\n", type, count, chunk,
                 count / median, 1e3 * median);
    }
  }
}

void bench_batch(Backend& backend) {
  for (const char* type : chosen(kFewTypes)) {
    ModelRun model(backend, small_model(type), {.context = 320, .max_sequences = kMostStreams});
    for (const int32_t streams : asked_streams) {
      const double speed = decode_speed(model, streams, 128, 128);
      fmt::print("batch    0.6B  {:7} {:3} streams   {:9.0f} tok/s  {:7.1f} us per step\n", type, streams, speed,
                 1e6 * streams / speed);
    }
  }
}

// Streams that decode beside a part of a prompt, in one step, and each alone.
void bench_mixed(Backend& backend) {
  constexpr int32_t kStreams = 32;
  constexpr int32_t kTokens = 480;
  const std::vector<int32_t> prompt = prompt_of(kTokens);
  for (const char* type : chosen(kFewTypes)) {
    ModelRun model(backend, small_model(type), {.context = 768, .max_sequences = kStreams + 1});
    const auto median_ms = [&](auto step) {
      std::vector<double> times;
      for (int run = 0; run < 24; ++run) {
        model.reset();
        for (int32_t s = 0; s < kStreams; ++s) model.prefill(s, prompt_of(192));
        model.decode(kStreams);
        model.decode(kStreams);
        const auto begin = Clock::now();
        step();
        times.push_back(1e3 * seconds_since(begin));
      }
      std::sort(times.begin(), times.end());
      return times[times.size() / 2];
    };
    const double decodes = median_ms([&] { model.decode(kStreams); });
    const double prefill = median_ms([&] { model.prefill(kStreams, prompt); });
    const double both = median_ms([&] { model.decode_beside(kStreams, kStreams, prompt); });
    fmt::print("mixed    0.6B  {:7} {} streams {:.3f} ms, {} tokens {:.3f} ms, both {:.3f} ms: {:.2f} of the larger\n",
               type, kStreams, decodes, kTokens, prefill, both, both / std::max(decodes, prefill));
  }
}

void bench_large(Backend& backend) {
  for (const char* type : chosen(kLargeTypes)) {
    ModelRun model(backend, SyntheticModel(find_model_shape("qwen3-8b"), type), {});
    print_decode("8B", type, 16, decode_speed(model, 1, 16, 64), read_bytes(model.model()));
  }
}

// Device time by op of one step, launched op by op.
void print_ops(Backend& backend, const char* title) {
  const StepTimes* times = backend.step_times();
  if (times == nullptr) return;
  std::map<std::string, std::pair<double, int>> by_op;
  for (size_t i = 0; i < times->ops.size(); ++i) {
    const WorkerTime& t = times->time(i, 0);
    auto& [us, count] = by_op[std::string(op_name(times->ops[i].op()))];
    us += static_cast<double>(t.end - t.begin) / times->ticks_per_us;
    ++count;
  }
  fmt::print("{}{}\n", title, times->replay_us > 0 ? fmt::format(", as a graph {:.1f} us", times->replay_us) : "");
  for (const auto& [op, sum] : by_op) fmt::print("  {:16} {:3} x  {:9.1f} us\n", op, sum.second, sum.first);
}

void bench_ops(Backend& backend) {
  for (const char* type : chosen(kFewTypes)) {
    ModelRun model(backend, small_model(type), {.context = 4352, .max_tokens = 4096});
    model.prefill(0, prompt_of(4096));
    model.reset();
    backend.set_timing(true);
    model.prefill(0, prompt_of(4096));
    print_ops(backend, fmt::format("prefill 4096 {}", type).c_str());
    model.decode(1);
    model.decode(1);
    print_ops(backend, fmt::format("decode at depth 4096 {}", type).c_str());
    model.reset();
    model.prefill(0, prompt_of(16));
    model.decode(1);
    model.decode(1);
    model.decode(1);
    print_ops(backend, fmt::format("decode at depth 16 {}", type).c_str());
    backend.set_timing(false);
    ModelRun batch(backend, small_model(type), {.context = 320, .max_sequences = 128});
    for (int32_t s = 0; s < 128; ++s) batch.prefill(s, prompt_of(192));
    for (const int32_t streams : {1, 2, 8, 32, 128}) {
      batch.decode(streams);
      backend.set_timing(true);
      for (int i = 0; i < 3; ++i) batch.decode(streams);
      print_ops(backend, fmt::format("decode of {} streams at depth 192 {}", streams, type).c_str());
      backend.set_timing(false);
    }
  }
}

// One step of each kind between profiler marks, for a tool that times kernels one by one:
//   ncu --profile-from-start off --metrics gpu__time_duration.sum cuda_bench profile
void bench_profile(Backend& backend) {
  const auto marked = [&](auto step) {
    backend.synchronize();
    cudaProfilerStart();
    step();
    backend.synchronize();
    cudaProfilerStop();
  };
  for (const char* type : chosen(kFewTypes)) {
    ModelRun model(backend, small_model(type, 2), {.context = 4352, .max_tokens = 4096, .max_sequences = 128});
    backend.set_timing(true);  // no graphs: every launch is seen
    marked([&] { model.prefill(0, prompt_of(4096)); });
    marked([&] { model.decode(1); });
    model.reset();
    for (int i = 0; i < 5; ++i) marked([&] { model.prefill(0, prompt_of(512)); });
    model.reset();
    for (int32_t s = 0; s < 128; ++s) model.prefill(s, prompt_of(192));
    for (const int32_t streams : {1, 2, 4, 8, 16, 32, 64, 128}) marked([&] { model.decode(streams); });
    backend.set_timing(false);
  }
}

int run(int argc, char** argv) {
  const auto backend = make_cuda_backend();
  fmt::print("{}\n", backend->description());
  for (int i = 1; i < argc; ++i) {
    if (std::find(std::begin(kTypes), std::end(kTypes), std::string_view(argv[i])) != std::end(kTypes)) {
      asked_types.emplace_back(argv[i]);
    }
  }
  for (int i = 1; i < argc; ++i) {
    const int streams = std::atoi(argv[i]);
    if (streams > kMostStreams) fail("{} streams: 1 to {} can be measured", streams, kMostStreams);
    if (streams > 0) asked_streams.push_back(streams);
  }
  const size_t named = asked_types.size() + asked_streams.size();
  if (asked_streams.empty()) asked_streams = {1, 2, 4, 8, 16, 32, 64, kMostStreams};
  const auto wants = [&](const char* name, bool by_default) {
    for (int i = 1; i < argc; ++i) {
      if (std::strcmp(argv[i], name) == 0) return true;
    }
    return argc == 1 + static_cast<int>(named) && by_default;
  };
  const auto section = [&](const char* name, bool by_default, void (*bench)(Backend&)) {
    if (!wants(name, by_default)) return;
    bench(*backend);
    std::fflush(stdout);
  };
  section("decode", true, bench_decode);
  section("sampling", true, bench_sampling);
  section("prefill", true, bench_prefill);
  section("batch", true, bench_batch);
  section("mixed", true, bench_mixed);
  section("large", true, bench_large);
  section("ops", false, bench_ops);
  section("profile", false, bench_profile);
  return 0;
}

}  // namespace
}  // namespace inferno

int main(int argc, char** argv) {
  try {
    return inferno::run(argc, argv);
  } catch (const inferno::Error& error) {
    fmt::print(stderr, "cuda_bench: {}\n", error.what());
    return 1;
  }
}
