// What a schema costs and gains while a text is decoded, in turns with the same text without one:
//   masks    a letter in a record, nothing guessed ahead
//   free     the same, and what the schema forces is guessed ahead, as ever
//   forced   records of long names, likewise
//   compile  gaps between the tokens of a text without a schema, while an enum of 50,000 values compiles beside it
// The draws of all turns are replaced by the tokens of a known text, so that a model with random weights writes it;
// everything else is computed as ever. The ids of both turns are compared: a difference is an error.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "dictating_backend.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "tokenizer/tokenizer.h"

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model;
  std::string vocabulary;
  std::string backend = "parallel";
  std::string only;
  int threads = 0;
  int rounds = 5;
};

constexpr const char* kFreeSchema =
    R"({"type":"object","additionalProperties":false,"required":["title","tags","body","score"],"properties":{
"title":{"type":"string","maxLength":80},"tags":{"type":"array","items":{"type":"string"}},"body":{"type":"string"},
"score":{"type":"number"}}})";
constexpr const char* kFreeText =
    R"({"title": "On the weather at sea", "tags": ["ships", "storms", "the north"], "body": "The wind rose in the )"
    R"(evening, and by midnight nobody on deck could stand without holding on to something. We had reefed the sails )"
    R"(long before, but the mast complained all the same, and the cook, who had been at sea for forty years, said )"
    R"(that he had heard worse only once. Towards morning it grew quieter. The captain came up, looked at the sky )"
    R"(for a while, and ordered coffee for everybody. There is little to add: the ship came home nine days later, )"
    R"(with all hands, and with a cargo of oranges of which hardly one was spoiled.", "score": 0.875})";
constexpr const char* kForcedSchema =
    R"({"type":"array","items":{"type":"object","additionalProperties":false,
"required":["observation_timestamp","temperature_in_degrees_celsius","relative_humidity_percentage","wind_direction",
"precipitation_probability","measurement_is_reliable"],"properties":{
"observation_timestamp":{"type":"integer"},"temperature_in_degrees_celsius":{"type":"integer"},
"relative_humidity_percentage":{"type":"integer"},"wind_direction":{"enum":["north-northeast","south-southwest"]},
"precipitation_probability":{"type":"number"},"measurement_is_reliable":{"type":"boolean"}}}})";

std::string forced_text() {
  std::string text = "[";
  for (int i = 0; i < 6; ++i) {
    text += fmt::format(
        R"({}{{"observation_timestamp": {}, "temperature_in_degrees_celsius": {}, "relative_humidity_percentage": {}, )"
        R"("wind_direction": "{}", "precipitation_probability": 0.{}, "measurement_is_reliable": true}})",
        i > 0 ? ", " : "", 1700 + 60 * i, 11 + i, 70 - 3 * i, i % 2 == 0 ? "north-northeast" : "south-southwest",
        1 + i);
  }
  return text + "]";
}

std::string large_enum(int round) {
  std::string schema = R"({"enum":[)";
  for (int i = 0; i < 50'000; ++i)
    schema += fmt::format("{}\"value {} of round {}\"", i > 0 ? "," : "", i * 7919, round);
  return schema + "]}";
}

double at(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

class StructuredBench {
 public:
  explicit StructuredBench(const Options& options) : options_(options) {
    EngineOptions engine;
    engine.backend = options.backend;
    engine.backend_options.threads = options.threads;
    engine.context = 1024;
    engine.decorate = [this](std::unique_ptr<Backend> inner) {
      if (!inner->cpu_numerics()) fail("draws can only be replaced in the host's memory; use a CPU backend");
      auto made = std::make_unique<DictatingBackend>(std::move(inner));
      dictating_ = made.get();
      return made;
    };
    engine_ = std::make_unique<Engine>(open_model(options.model), engine);
    tokenizer_ = engine_->tokenizer();
    if (!options.vocabulary.empty()) {
      own_tokenizer_ = Tokenizer::load(GgufFile::open(options.vocabulary));
      tokenizer_ = own_tokenizer_.get();
    }
    if (tokenizer_ == nullptr) fail("there is no vocabulary");
    constraints_ = std::make_unique<Constraints>(tokenizer_);
    prompt_ = tokenizer_->encode("A report as JSON:");
  }

  void run() {
    const auto wanted = [&](std::string_view name) { return options_.only.empty() || options_.only == name; };
    if (wanted("masks")) compare("masks", kFreeSchema, kFreeText, 0);
    if (wanted("free")) compare("free", kFreeSchema, kFreeText, kMostDraft);
    if (wanted("forced")) compare("forced", kForcedSchema, forced_text(), kMostDraft);
    if (wanted("compile")) run_compile();
  }

 private:
  [[nodiscard]] Request request(size_t tokens) const {
    Request r{.prompt = prompt_, .max_new_tokens = static_cast<int32_t>(tokens)};
    r.stop_at_end = false;
    r.text = false;
    r.draft = false;
    return r;
  }

  void compare(const char* name, const char* schema, const std::string& text, int32_t most_draft) {
    const std::vector<int32_t> ids = tokenizer_->encode(text, {.parse_special = false});
    std::vector<int32_t> dictated = prompt_;
    dictated.insert(dictated.end(), ids.begin(), ids.end());
    dictating_->dictate(dictated);
    std::vector<double> plain_ms;
    std::vector<double> schema_ms;
    std::vector<double> ratios;
    GenerateMetrics last;
    for (int i = 0; i <= options_.rounds; ++i) {
      Request with = request(ids.size());
      with.max_draft = most_draft;
      constraints_->apply({.json_schema = schema}, with);
      with.stop_at_end = false;
      const bool plain_first = i % 2 == 0;
      RequestResult a = generate(*engine_, plain_first ? request(ids.size()) : with);
      RequestResult b = generate(*engine_, plain_first ? with : request(ids.size()));
      if (!plain_first) std::swap(a, b);
      if (a.ids() != ids || b.ids() != ids) fail("{}: the texts differ", name);
      if (i == 0) continue;  // the first to touch memory
      plain_ms.push_back(1e3 / a.metrics.decode_tokens_per_second);
      schema_ms.push_back(1e3 / b.metrics.decode_tokens_per_second);
      ratios.push_back(plain_ms.back() / schema_ms.back());
      last = b.metrics;
    }
    fmt::print(
        "{}: {} tokens, ms a token without {:.3f}, with {:.3f}; speed with / without {:.3f}; {} of {} guesses right\n",
        name, ids.size(), at(plain_ms, 0.5), at(schema_ms, 0.5), at(ratios, 0.5), last.accepted_tokens,
        last.drafted_tokens);
    dictating_->dictate({});
  }

  void run_compile() {
    std::vector<double> quiet;
    std::vector<double> beside;
    double compile_ms = 0;
    for (int round = 0; round < options_.rounds; ++round) {
      std::atomic<bool> compiling = false;
      std::atomic<bool> done = false;
      Clock::time_point before;
      Request stream = request(900);
      stream.on_token = [&](const TokenEvent&) {
        const Clock::time_point now = Clock::now();
        if (before != Clock::time_point()) {
          (compiling ? beside : quiet).push_back(std::chrono::duration<double, std::milli>(now - before).count());
        }
        before = now;
        return !done;
      };
      const auto ticket = engine_->driver().submit(std::move(stream));
      std::this_thread::sleep_for(std::chrono::seconds(1));
      const std::string schema = large_enum(round);
      compiling = true;
      const Clock::time_point begin = Clock::now();
      Request with = request(8);
      constraints_->apply({.json_schema = schema}, with);
      compile_ms = std::max(compile_ms, std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
      compiling = false;
      done = true;
      ticket->wait();
    }
    const auto print = [](const char* what, const std::vector<double>& gaps) {
      fmt::print("compile: {}: {} gaps, ms: 50 % {:.1f}, 99 % {:.1f}, max {:.1f}; <= 150 ms: {:.2f} %\n", what,
                 gaps.size(), at(gaps, 0.5), at(gaps, 0.99), at(gaps, 1),
                 100.0 * static_cast<double>(std::ranges::count_if(gaps, [](double ms) { return ms <= 150; })) /
                     static_cast<double>(gaps.size()));
    };
    print("alone", quiet);
    print("beside an enum of 50,000 values", beside);
    fmt::print("compile: the enum took {:.0f} ms at most\n", compile_ms);
  }

  const Options& options_;
  std::unique_ptr<const Tokenizer> own_tokenizer_;
  const Tokenizer* tokenizer_ = nullptr;
  std::unique_ptr<Constraints> constraints_;  // outlives the engine's requests
  std::unique_ptr<Engine> engine_;
  DictatingBackend* dictating_ = nullptr;  // owned by the engine
  std::vector<int32_t> prompt_;
};

}  // namespace
}  // namespace inferno

int main(int argc, char** argv) {
  CLI::App app("decoding under a schema beside decoding without one");
  inferno::Options options;
  app.add_option("model", options.model, "a .gguf file (default: the built-in model)");
  app.add_option("--vocabulary", options.vocabulary, "a .gguf file whose vocabulary is used instead of the model's");
  app.add_option("--only", options.only, "one case")->check(CLI::IsMember({"masks", "free", "forced", "compile"}));
  app.add_option("--backend", options.backend, "as for inferno");
  app.add_option("--threads", options.threads, "as for inferno")->check(CLI::Range(0, 1024));
  app.add_option("--rounds", options.rounds, "turns")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  try {
    inferno::StructuredBench(options).run();
  } catch (const inferno::Error& error) {
    fmt::print(stderr, "structured_bench: error: {}\n", error.what());
    return 1;
  }
  return 0;
}
