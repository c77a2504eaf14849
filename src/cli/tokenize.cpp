// inferno tokenize: text to token ids and back.
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/prompt_input.h"
#include "engine/builtin_model.h"
#include "tokenizer/tokenizer.h"

namespace inferno::cli {

namespace {

struct TokenizeCommand {
  std::string model, text, file;
  bool has_text = false;
  bool bos = false;
  bool no_special = false;
  bool ids_only = false;
  bool decode = false;
  bool jsonl = false;

  void run() const;
  void run_jsonl(const Tokenizer& tokenizer) const;
  [[nodiscard]] EncodeOptions options() const { return {.parse_special = !no_special, .add_bos = bos}; }
};

std::string join(std::span<const int32_t> ids) {
  std::string line;
  for (const int32_t id : ids) line += fmt::format("{}{}", line.empty() ? "" : ",", id);
  return line;
}

void TokenizeCommand::run_jsonl(const Tokenizer& tokenizer) const {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (trim(line).empty()) continue;
    const nlohmann::json in = nlohmann::json::parse(line, nullptr, false);
    if (!in.is_object() || !in.contains("text") || !in["text"].is_string()) {
      fail("line {} of standard input is not an object with a string \"text\"", number);
    }
    nlohmann::json out;
    out["ids"] = tokenizer.encode(in["text"].get<std::string>(), options());
    write_stdout(out.dump() + "\n");
  }
}

void TokenizeCommand::run() const {
  const std::unique_ptr<const Tokenizer> tokenizer = Tokenizer::load(open_model(model));
  if (tokenizer == nullptr) fail("\"{}\" has no vocabulary, or this build no tokenizers", model);
  if (jsonl) {
    run_jsonl(*tokenizer);
    return;
  }
  const std::string input = has_text ? text : read_text(file.empty() ? "-" : file, kMaxTextBytes);
  if (decode) {
    const std::vector<int32_t> ids = parse_ids(input);
    write_stdout(tokenizer->decode(ids));
    return;
  }
  const std::vector<int32_t> ids = tokenizer->encode(input, options());
  if (ids_only) {
    write_stdout(join(ids) + "\n");
    return;
  }
  for (const int32_t id : ids) write_stdout(fmt::format("{:>8}  {}\n", id, printable(tokenizer->piece(id))));
}

}  // namespace

void add_tokenize(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("tokenize", "text to token ids, or back with --decode");
  auto command = std::make_shared<TokenizeCommand>();
  sub->footer(
      "Examples:\n"
      "  inferno tokenize model.gguf \"Hello there\"     ids and pieces, one per line\n"
      "  inferno tokenize model.gguf --ids \"Hello\"     the ids alone, as 1,2,3\n"
      "  inferno tokenize model.gguf --decode 1,2,3    the bytes of tokens\n"
      "  inferno tokenize model.gguf --jsonl < in      one {\"text\": ...} per line to one {\"ids\": [...]}");
  sub->add_option("model", command->model,
                  "a .gguf file or a Hugging Face folder; a vocabulary without tensors is enough")
      ->required();
  CLI::Option* text =
      sub->add_option("text", command->text, "the text, or the ids with --decode (default: standard input)");
  sub->add_option("--file", command->file, "read the text from a file");
  sub->add_flag("--bos", command->bos, "put the beginning-of-text token in front");
  sub->add_flag("--no-special", command->no_special, "recognise no added token, such as <|im_end|>, in the text");
  sub->add_flag("--ids", command->ids_only, "print ids only");
  sub->add_flag("--decode", command->decode, "read ids, write bytes");
  sub->add_flag("--jsonl", command->jsonl, "read one {\"text\": ...} per line, write one {\"ids\": [...]} per line");
  sub->callback([command, text] {
    command->has_text = text->count() > 0;
    command->run();
  });
}

}  // namespace inferno::cli
