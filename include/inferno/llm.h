// A model, loaded: text in, text out, for one caller or many at once.
//
// Every failure is an inferno::Error whose message is one line; a value that makes no sense (NaN, a temperature of -1)
// is one, too, and never changed silently.
//
// Threads: every function of an Llm and of a Generation may be called from any thread. Requests share the machine: a
// request's text does not depend on what else runs (on a CPU bit for bit). generate() computes on the caller's thread
// while it is the only one; submit(), or a second generate() meanwhile, starts a thread of the library's own that
// computes for all and sleeps while there is nothing to do. Callbacks run on the thread that computes, one at a time:
// they may submit and cancel, but not wait, and while one runs no token is made. A child of fork() cannot use an Llm
// of its parent, nor can anybody use one that was moved from: an Error each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inferno/answer.h"
#include "inferno/embedding.h"
#include "inferno/error.h"
#include "inferno/types.h"

namespace inferno {

struct LoadOptions {
  std::string backend = {};  // "scalar", "simd", "parallel", "cuda", or one with rules per op; empty: the best there is
  int threads = 0;           // 0: as many as pay off
  std::string affinity = {};  // where threads run: "auto", "none", "compact", "spread" or CPUs such as "0-3,8"
  std::string numa = {};      // on several memory nodes: "distribute", "isolate", "numactl"
  int32_t context = 0;        // positions of one sequence; 0: the model's own, at most 4096
  std::string kv_type = {};   // of the cache: "f32", "f16", "bf16", "q8_0"; empty: the backend's default
  uint64_t kv_memory = 0;     // bytes of the cache; 0: max_sequences of the whole context, or what fits of it
  int32_t max_sequences = 8;  // that are computed at once; more wait
  std::string draft = {};     // a smaller model of the same vocabulary that guesses tokens ahead; empty: none
  // The gap between tokens that a long prompt of another request may cause, as a target; 0: 100 on a CPU, 25 on a GPU,
  // more where the gap without prompts would leave them less than 60 % of that, or less than half of the gap.
  double max_token_latency_ms = 0;
  bool fused = true;     // false: fused ops run as the primitives that define them
  bool profile = false;  // measure every op for Llm::profile()
  // Room for the logits of many positions in one step: makes logits() and perplexity() fast.
  bool all_logits = false;
  // Of a program whose ranks were joined (docs/scale.md): how large each rank's part of the model is, relative to the
  // others; empty: all alike. How many stages, each of as many ranks, the layers are divided among. And what sums over
  // ranks are sent as: "f32" (the default), "bf16".
  std::vector<int32_t> split = {};
  int32_t pipeline = 1;
  std::string wire = {};
  OnProgress on_progress = {};  // of loading, in bytes
  // After each step, when the callbacks for its tokens were called, on the thread that computes: who hands tokens on to
  // others can wake them once. Must not throw.
  std::function<void()> on_step = {};
  std::function<void(const std::string& line)> on_info = {};  // the device, when it is not the host
};

struct ProfileReport;

// A request that was submitted. Copies are handles to the same one; it goes on without them.
class INFERNO_API Generation {
 public:
  // Ends it before its next step; what was made so far is its result.
  void cancel() const noexcept;
  [[nodiscard]] bool is_done() const noexcept;
  // Blocks until it is done.
  void wait() const;
  // What was added to the text of the first sample since the last call, waiting for it where there is nothing yet;
  // empty at the end. Of requests without a callback alone.
  [[nodiscard]] std::optional<std::string> next() const;
  // Waits and returns the result, or throws the Error it ended with.
  [[nodiscard]] GenerateResult result() const;

  struct State;  // the library's own

 private:
  friend class Llm;
  explicit Generation(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

class INFERNO_API Llm {
 public:
  [[nodiscard]] static Llm load(const std::string& path, const LoadOptions& options = {});
  // The small story-telling model that is part of the library.
  [[nodiscard]] static Llm builtin(const LoadOptions& options = {});
  // Cancels what runs and waits for its end.
  ~Llm();
  Llm(Llm&& other) noexcept;
  Llm& operator=(Llm&& other) noexcept;

  GenerateResult generate(const Prompt& prompt, const GenerateOptions& options = {},
                          const TokenCallback& on_token = {});
  // The next answer of a conversation: generate() with the messages as its prompt.
  GenerateResult chat(std::vector<ChatMessage> messages, const GenerateOptions& options = {},
                      const TokenCallback& on_token = {});
  // The next answer of a conversation, taken apart: thinking, words, calls of tools (inferno/answer.h). Calls are of
  // the tools in `chat`, with arguments that fit their schemas (docs/tools.md).
  ChatAnswer answer(const Prompt::Chat& chat, const GenerateOptions& options = {}, const AnswerCallback& on_piece = {});
  // Takes the answer to that conversation apart, which generate() or submit() makes. `id_seed` makes the ids of calls.
  [[nodiscard]] AnswerReader answer_reader(const Prompt::Chat& chat, uint64_t id_seed = 0) const;
  // Returns at once. What cannot be carried out is an Error here already. `on_done` is called when the result is there,
  // on the thread that computes; it must not throw.
  [[nodiscard]] Generation submit(const Prompt& prompt, const GenerateOptions& options = {},
                                  TokenCallback on_token = {}, std::function<void()> on_done = {});
  // submit() without a thread of the library's own: step() computes it on the caller's, as do generate() and submit()
  // meanwhile.
  [[nodiscard]] Generation enqueue(const Prompt& prompt, const GenerateOptions& options = {},
                                   TokenCallback on_token = {}, std::function<void()> on_done = {});
  // One step of all requests, on this thread. False: there is nothing to do, or another thread computes them and goes
  // on until all are done.
  bool step();
  // Ends all that runs or waits now; does nothing when there is none. Safe in signal handlers.
  void cancel() noexcept;

  // Vectors of texts, several at once: similar texts have similar ones (the cosine is the product of rows of unit
  // length). Made for it are models with a pooling of their own; of another one whose layers are plain attention and
  // MLPs, a pooling must be chosen.
  [[nodiscard]] Embeddings embed(std::span<const std::string> texts, const EmbedOptions& options = {});
  // How well each document answers the query, by a model made for it: higher is better.
  [[nodiscard]] std::vector<float> rerank(const std::string& query, std::span<const std::string> documents,
                                          bool truncate = false);
  // False: an encoder. embed() and rerank() work, generate() and all that makes or scores tokens is an Error.
  [[nodiscard]] bool makes_text() const;

  // Of the prompt's positions from `first_position` on; -1: of the last one alone.
  [[nodiscard]] Logits logits(const Prompt& prompt, int32_t first_position = -1);
  // Windows of 512 tokens, each from an empty cache; the second half of each is scored. Progress is in windows.
  [[nodiscard]] Perplexity perplexity(std::span<const int32_t> tokens, int64_t max_windows = 0,
                                      const OnProgress& on_progress = {});

  // The ids that generate() begins with. `before`: the ids of an earlier prompt and its answer; as far as the text
  // begins alike these are kept instead of encoding it anew, so that all of it is found in the cache.
  [[nodiscard]] std::vector<int32_t> encode(const Prompt& prompt, std::span<const int32_t> before = {}) const;
  // The ids of a text alone. Added tokens such as <|im_end|> are recognised unless parse_special is false.
  [[nodiscard]] std::vector<int32_t> tokenize(std::string_view text, bool parse_special = true) const;
  [[nodiscard]] std::string detokenize(std::span<const int32_t> ids) const;  // raw bytes
  // A conversation as the text that its template makes of it.
  [[nodiscard]] std::string render(const Prompt::Chat& chat) const;
  [[nodiscard]] bool has_vocabulary() const;  // false: token ids only
  [[nodiscard]] int32_t vocabulary() const;
  [[nodiscard]] int32_t context() const;
  [[nodiscard]] std::vector<int32_t> end_tokens() const;
  // How the model's file says that its texts are best drawn (general.sampling.*); empty: it does not.
  [[nodiscard]] std::optional<SamplingSettings> suggested_sampling() const;
  [[nodiscard]] bool has_chat_template() const;
  // Whether ChatOptions::enable_thinking changes anything; with a template as in ChatOptions::chat_template.
  [[nodiscard]] bool can_switch_thinking(std::string_view chat_template = {}) const;
  [[nodiscard]] std::string backend() const;
  [[nodiscard]] std::string kv_type() const;
  [[nodiscard]] EngineStats stats() const;
  // Where the time went since loading (inferno/tools.h); needs LoadOptions::profile. Waits for the step that runs.
  [[nodiscard]] ProfileReport profile() const;

 private:
  struct Impl;
  explicit Llm(std::unique_ptr<Impl> impl);
  [[nodiscard]] Impl& impl() const;  // an Error where it cannot be used
  std::unique_ptr<Impl> impl_;
};

}  // namespace inferno
