// What guessing tokens ahead gains and costs, each case in turns with plain decoding of the same text:
//   right   the text is known: every guess is right, --draft-max of them at a time
//   wrong   the same text, and every guess another token than comes
//   lookup  prompt look-up while a text is copied with edits. A model with random weights copies nothing, so the draws
//           of both turns are replaced by the edited text's tokens; everything else is computed as ever
//   draft   a draft model (--draft), on a text of the model's own
// The ids of both turns are compared: a difference is an error.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <random>

#include "base/error.h"
#include "dictating_backend.h"
#include "edited_text.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "tokenizer/tokenizer.h"

namespace inferno {
namespace {

struct Options {
  std::string model;
  std::string draft;
  std::string backend = "parallel";
  std::string only;
  int threads = 0;
  int rounds = 5;
  int32_t tokens = 256;
  int32_t max_draft = 7;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class SpeculationBench {
 public:
  explicit SpeculationBench(const Options& options) : options_(options) {
    EngineOptions engine;
    engine.backend = options.backend;
    engine.backend_options.threads = options.threads;
    engine.context = 2048;
    engine.draft = options.draft;
    engine.decorate = [this](std::unique_ptr<Backend> inner) {
      if (!inner->cpu_numerics()) fail("draws can only be replaced in the host's memory; use a CPU backend");
      auto made = std::make_unique<DictatingBackend>(std::move(inner));
      dictating_ = made.get();
      return made;
    };
    engine_ = std::make_unique<Engine>(open_model(options.model), engine);
    vocabulary_ = engine_->model().config().vocabulary;
    std::mt19937 random(1);
    for (int32_t i = 0; i < 128; ++i)
      prompt_.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary_)));
  }

  void run() {
    fmt::print("{:<34} {:>6} {:>9} {:>9} {:>7} {:>10} {:>12}\n", "case", "tokens", "plain", "guessed", "ratio",
               "accepted", "tokens/step");
    const auto wanted = [&](std::string_view name) { return options_.only.empty() || options_.only == name; };
    const Request plain = request(prompt_);
    const std::vector<int32_t> known = generate(*engine_, plain).ids();
    if (wanted("right"))
      compare(fmt::format("right, {} at a time", options_.max_draft), plain, guessing(plain, known, 0));
    if (wanted("wrong")) compare("wrong", plain, guessing(plain, known, 1));
    if (wanted("lookup")) run_lookup();
    if (wanted("draft") && !options_.draft.empty()) {
      Request drafting = plain;
      drafting.draft = true;
      compare("draft model", plain, drafting);
    }
  }

 private:
  [[nodiscard]] Request request(std::vector<int32_t> prompt) const {
    Request r{.prompt = std::move(prompt), .max_new_tokens = options_.tokens};
    r.stop_at_end = false;
    r.text = false;
    r.draft = false;
    return r;
  }
  [[nodiscard]] Request guessing(Request r, const std::vector<int32_t>& known, int32_t off) const {
    r.max_draft = options_.max_draft;
    r.guess = [&known, off, size = vocabulary_](int32_t, std::span<const int32_t> made, std::span<int32_t> out) {
      const size_t count = std::min(out.size(), known.size() - made.size());
      for (size_t i = 0; i < count; ++i) out[i] = (known[made.size() + i] + off) % size;
      return static_cast<int32_t>(count);
    };
    return r;
  }

  void run_lookup() {
    const std::unique_ptr<const Tokenizer> tokenizer = Tokenizer::load(open_builtin_model());
    if (tokenizer == nullptr) fail("this build has no tokenizers");
    std::vector<int32_t> prompt = tokenizer->encode(kText);
    const std::vector<int32_t> edited = tokenizer->encode(kEditedText);
    Request plain = request(prompt);
    plain.max_new_tokens = static_cast<int32_t>(edited.size());
    prompt.insert(prompt.end(), edited.begin(), edited.end());
    if (std::ranges::any_of(prompt, [&](int32_t id) { return id >= vocabulary_; })) fail("the vocabulary is too small");
    dictating_->dictate(prompt);
    Request looking = plain;
    looking.lookup = true;
    compare("look-up, a letter copied and edited", plain, looking);
    dictating_->dictate({});
  }

  // In turns, the order changing; figures are tokens per second after the first token.
  void compare(const std::string& name, const Request& plain, const Request& guessed) {
    std::vector<double> before;
    std::vector<double> after;
    std::vector<double> ratios;
    GenerateMetrics last;
    for (int32_t i = 0; i < options_.rounds; ++i) {
      const bool plain_first = i % 2 == 0;
      RequestResult a = generate(*engine_, plain_first ? plain : guessed);
      RequestResult b = generate(*engine_, plain_first ? guessed : plain);
      if (!plain_first) std::swap(a, b);
      if (a.ids() != b.ids()) fail("{}: the texts differ", name);
      before.push_back(a.metrics.decode_tokens_per_second);
      after.push_back(b.metrics.decode_tokens_per_second);
      ratios.push_back(after.back() / before.back());
      last = b.metrics;
    }
    const double share = last.drafted_tokens > 0 ? 100.0 * last.accepted_tokens / last.drafted_tokens : 0;
    fmt::print("{:<34} {:>6} {:>9.1f} {:>9.1f} {:>7.3f} {:>5}/{:<4} {:>3.0f}% {:>6.2f}\n", name, last.generated_tokens,
               median(before), median(after), median(ratios), last.accepted_tokens, last.drafted_tokens, share,
               static_cast<double>(last.generated_tokens) / last.forwards);
  }

  const Options& options_;
  std::unique_ptr<Engine> engine_;
  DictatingBackend* dictating_ = nullptr;  // owned by the engine
  int32_t vocabulary_ = 0;
  std::vector<int32_t> prompt_;
};

}  // namespace
}  // namespace inferno

int main(int argc, char** argv) {
  CLI::App app("tokens guessed ahead: what right and wrong guesses, prompt look-up and a draft model gain and cost");
  inferno::Options options;
  app.add_option("model", options.model, "a .gguf file (default: the built-in model)");
  app.add_option("--draft", options.draft, "a draft model");
  app.add_option("--only", options.only, "one case")->check(CLI::IsMember({"right", "wrong", "lookup", "draft"}));
  app.add_option("--backend", options.backend, "as for inferno");
  app.add_option("--threads", options.threads, "as for inferno")->check(CLI::Range(0, 1024));
  app.add_option("--rounds", options.rounds, "turns")->check(CLI::Range(1, 1000));
  app.add_option("-n", options.tokens, "tokens of a turn")->check(CLI::Range(8, 1024));
  app.add_option("--draft-max", options.max_draft, "guesses at a time")->check(CLI::Range(1, 15));
  CLI11_PARSE(app, argc, argv);
  try {
    inferno::SpeculationBench(options).run();
  } catch (const inferno::Error& error) {
    fmt::print(stderr, "speculation_bench: error: {}\n", error.what());
    return 1;
  }
  return 0;
}
