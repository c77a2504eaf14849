// inferno embed: texts to vectors, or to scores as answers to a query.
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/standard_streams.h"
#include "cli/cli.h"
#include "cli/prompt_input.h"
#include "engine/builtin_model.h"

namespace inferno::cli {
namespace {

struct EmbedCommand {
  EngineFlags engine;
  std::string model, file, pooling, query;
  std::vector<std::string> texts;
  int32_t dimensions = 0;
  bool as_is = false;
  bool truncate = false;
  bool json = false;
  bool ranks = false;

  void run();
  void print_vectors(Engine& instance) const;
  void print_scores(Engine& instance) const;
};

// One text per line; empty lines are none.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.emplace_back(line);
  }
  return lines;
}

void EmbedCommand::run() {
  if (texts.empty() || !file.empty()) {
    const std::string input = read_text(file.empty() ? "-" : file, kMaxTextBytes);
    const std::vector<std::string> lines = lines_of(without_file_marks(input));
    texts.insert(texts.end(), lines.begin(), lines.end());
  }
  if (texts.empty()) fail("there is no text to embed; give some as arguments, or one per line");
  const AnyModelFile opened = open_model(model);
  EngineOptions options = engine.options();
  options.limits.max_sequences = 1;  // no text is made
  Engine instance(opened, options);
  ranks ? print_scores(instance) : print_vectors(instance);
}

void EmbedCommand::print_vectors(Engine& instance) const {
  Embedder& embedder = instance.embedder();
  EmbedSettings settings{.normalize = !as_is, .dimensions = dimensions};
  if (!pooling.empty()) settings.pooling = pooling_from_name(pooling);
  const std::string_view pooled = pooling_name(pooling.empty() ? embedder.pooling() : settings.pooling);
  std::vector<EncoderText> encoded;
  size_t tokens = 0;
  for (const std::string& text : texts) {
    encoded.push_back(embedder.encode(text, truncate));
    tokens += encoded.back().ids.size();
  }
  const std::vector<std::vector<float>> vectors = embedder.embed(encoded, settings);
  if (json) {
    const nlohmann::ordered_json whole = {{"pooling", pooled},
                                          {"normalized", settings.normalize},
                                          {"dimensions", vectors[0].size()},
                                          {"tokens", tokens},
                                          {"embeddings", vectors}};
    write_stdout(whole.dump() + "\n");
    return;
  }
  if (!engine.quiet) {
    print_stderr("{} texts, {} tokens, {} dimensions, {} pooling{}\n", texts.size(), tokens, vectors[0].size(), pooled,
                 settings.normalize ? ", normalized" : "");
  }
  for (const std::vector<float>& vector : vectors) {
    std::string line;
    for (const float v : vector) line += fmt::format("{}{}", line.empty() ? "" : " ", v);
    write_stdout(line + "\n");
  }
}

void EmbedCommand::print_scores(Engine& instance) const {
  Embedder& embedder = instance.embedder();
  std::vector<EncoderText> pairs;
  pairs.reserve(texts.size());
  for (const std::string& text : texts) pairs.push_back(embedder.encode_pair(query, text, truncate));
  const std::vector<float> scores = embedder.score(pairs);
  if (json) {
    write_stdout(nlohmann::ordered_json{{"scores", scores}}.dump() + "\n");
    return;
  }
  for (size_t i = 0; i < texts.size(); ++i) write_stdout(fmt::format("{}\t{}\n", scores[i], texts[i]));
}

}  // namespace

void add_embed(CLI::App& app) {
  auto command = std::make_shared<EmbedCommand>();
  CLI::App* sub = app.add_subcommand("embed", "texts to vectors: one line of numbers each");
  sub->footer(
      "Examples:\n"
      "  inferno embed model.gguf \"a text\" \"another\"       a line of numbers for each\n"
      "  inferno embed model.gguf --json < lines.txt       one text per line, one object of JSON\n"
      "  inferno embed ranker.gguf --query \"who?\" a b c    how well each text answers, by a model made for it");
  sub->add_option("model", command->model, "a .gguf file, or a name that pull knows")->required();
  sub->add_option("texts", command->texts, "texts (default: one per line of standard input)")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub->add_option("--file", command->file, "read more texts from a file, one per line");
  sub->add_option("--pooling", command->pooling, "mean, cls or last (default: the model's own)");
  sub->add_option("--dimensions", command->dimensions, "keep only the first so many (0: all)")
      ->check(CLI::Range(0, 1 << 24));
  sub->add_flag("--no-normalize", command->as_is, "leave the vectors' lengths as they are");
  sub->add_flag("--truncate", command->truncate, "cut texts that are too long for the model");
  CLI::Option* query = sub->add_option("--query", command->query, "score the texts as answers to this");
  sub->add_flag("--json", command->json, "one object of JSON");
  command->engine.add_to(*sub);
  sub->callback([command, query] {
    command->ranks = query->count() > 0;
    command->run();
  });
}

}  // namespace inferno::cli
