// The program as a user sees it: output, exit codes, and one clear line for everything that can go wrong.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

namespace fs = std::filesystem;

using Cli = Folder;

TEST_F(Cli, HelpAndVersionSucceed) {
  EXPECT_EQ(run({"--help"}).code, 0);
  EXPECT_EQ(run({"generate", "--help"}).code, 0);
  EXPECT_TRUE(run({"--version"}).out.starts_with("inferno "));
}

TEST_F(Cli, WrongUsageIsExitCode2AndOneLine) {
  expect_error(run({"generate", "--no-such-option"}), 2, "no-such-option");
  expect_error(run({"generate", kLlamaFile, "x", "-n", "-2"}), 2, "-n");
  expect_error(run({"generate", kLlamaFile, "x", "-n", "99999999999999999999"}), 2, "-n");
  expect_error(run({"generate", kLlamaFile, "x", "--temp", "hot"}), 2, "temp");
  expect_error(run({"generate", kLlamaFile, "x", "--backend", "x"}), 2, "unknown backend \"x\" (supported: scalar");
  expect_error(run({"generate", kLlamaFile, "x", "--kv-type", "q9"}), 2, "q9");
  expect_error(run({"generate", kLlamaFile, "x", "--stop", ""}), 2, "stop");
  expect_error(run({"generate", kLlamaFile, "--ids", "1,two"}), 2, "two");
  expect_error(run({"generate", kLlamaFile, "x", "--ctx", "100000000"}), 2, "--ctx 100000000 is more than the ");
  expect_error(run({"generate", kLlamaFile, "x", "--threads", "0"}), 2, "--threads: 0 threads");
  expect_error(run({"generate", kLlamaFile, "x", "--affinity", "x"}), 2, "--affinity: 'x' is none of");
  expect_error(run({"generate", kLlamaFile, "x", "--affinity", "99999"}), 2, "--affinity: CPU 99999");
  expect_error(run({"generate", kLlamaFile, "x", "--numa", "x"}), 2, "--numa: 'x' is none of");
  // At least one of them is not in this program.
  const bool has_cuda = run({"generate", kLlamaFile, "x", "-n", "1", "--backend", "cuda"}).code == 0;
  expect_error(run({"generate", kLlamaFile, "x", "--backend", has_cuda ? "metal" : "cuda"}), 2,
               "use --backend parallel");
  expect_error(run({"generate", kLlamaFile, "x", "--backend", "simd,x"}), 2, "\"x\" in --backend is not");
  expect_error(run({"quantize", kLlamaFile, path("x.gguf"), "Q9"}), 2, "Q9");
  expect_error(run({"generate"}, {.environment = {{"INFERNO_LOG", "loud"}}}), 2, "INFERNO_LOG");
}

TEST_F(Cli, TextsFitTheFormThatFlagsAskFor) {
  const auto make = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> all = {"generate", "--quiet", "--temp",          "1", "--seed", "5",
                                    "-n",       "80",      "Once upon a time"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  std::ofstream(path("schema.json")) << R"({"type":"array","items":{"enum":["red","blue"]},"minItems":2,"maxItems":3})";
  std::ofstream(path("rules.gbnf")) << "root ::= (\"yes\" | \"no\") \"!\"";
  const std::string colours = make({"--json-schema", path("schema.json")});
  EXPECT_NE(colours.find('['), std::string::npos) << colours;
  EXPECT_NE(colours.find(']'), std::string::npos) << colours;
  EXPECT_NE(make({"--grammar", path("rules.gbnf")}).find('!'), std::string::npos);
  EXPECT_NE(make({"--regex", "ab{3}c"}).find("abbbc"), std::string::npos);
}

TEST_F(Cli, AWrongFormIsExitCode2AndNamesWhatIsWrong) {
  std::ofstream(path("schema.json")) << R"({"properties":{"a":{"type":"array","uniqueItems":true}}})";
  expect_error(run({"generate", "x", "--json-schema", path("schema.json")}), 2, "`uniqueItems` at #/properties/a");
  expect_error(run({"generate", "x", "--json-schema", path("absent.json")}), 1, "absent.json");
  expect_error(run({"generate", "x", "--regex", "(a"}), 2, "(a");
  expect_error(run({"generate", "x", "--regex", "a", "--json-schema", path("schema.json")}), 2, "--json-schema");
  std::ofstream(path("rules.gbnf")) << "start ::= \"a\"";
  expect_error(run({"generate", "x", "--grammar", path("rules.gbnf")}), 2, "root");
}

TEST_F(Cli, WarningsNameFlags) {
  const Outcome outcome =
      run({"generate", kLlamaFile, "x", "-n", "1", "--quiet", "--affinity", "0", "--numa", "distribute"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("warning: --")) << outcome.err;
  EXPECT_EQ(outcome.err.find('`'), std::string::npos) << outcome.err;
}

TEST_F(Cli, BadFilesAreExitCode1AndOneLine) {
  expect_error(run({"generate", path("absent.gguf"), "x"}), 1, "absent.gguf");
  fs::create_directory(path("folder.gguf"));
  expect_error(run({"generate", path("folder.gguf"), "x"}), 1, "is a folder without a config.json");
  std::ofstream(path("empty.gguf")).flush();
  expect_error(run({"generate", path("empty.gguf"), "x"}), 1, "empty.gguf");
  std::ofstream(path("text.gguf")) << "This is a text and no model at all, long enough for a header to be read.";
  expect_error(run({"generate", path("text.gguf"), "x"}), 1, "text.gguf");
  const std::string whole = [] {
    std::ifstream in(kLlamaFile, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  for (size_t size = 4; size < whole.size(); size = size * 3 / 2 + 1) {
    std::ofstream(path("cut.gguf"), std::ios::binary) << whole.substr(0, size);
    expect_error(run({"generate", path("cut.gguf"), "x", "-n", "1"}), 1, "cut.gguf");
  }
}

// Half a character in the text would be no JSON: the generation would be lost after it was made.
TEST_F(Cli, AStopStringThatIsHalfACharacterIsRefusedBeforeAnythingRuns) {
  expect_error(run({"generate", kLlamaFile, "x", "--json", "--stop", "\xA9"}), 2, "\\xa9\" is not valid UTF-8");
  EXPECT_EQ(run({"generate", kLlamaFile, "x", "-n", "2", "--json", "--stop", "\xC3\xA9"}).code, 0);
}

TEST_F(Cli, PerplexityInAContextOfOnePositionIsOneLine) {
  std::ofstream(path("text.txt")) << std::string(5000, 'x');
  expect_error(run({"perplexity", kLlamaFile, path("text.txt"), "--ctx", "1"}), 1, "context of at least 2");
  EXPECT_EQ(run({"perplexity", kLlamaFile, path("text.txt"), "--ctx", "2", "--windows", "2"}).code, 0);
}

// More cache than any machine has RAM: said before anything is allocated.
TEST_F(Cli, AModelThatDoesNotFitIsOneLineBeforeItIsLoaded) {
  const std::vector<std::string> too_much = {"--kv-memory", "1000TB"};
  expect_error(run({"generate", "x", "-n", "1", too_much[0], too_much[1]}), 1, "of RAM and");
  const Outcome plan = run({"plan", too_much[0], too_much[1]});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(plan.out.find("it does not fit"), std::string::npos) << plan.out;
}

TEST_F(Cli, PlanSaysWhetherTheModelFitsIntoRam) {
  const Outcome text = run({"plan", kLlamaFile});
  EXPECT_NE(text.out.find("are available: it fits"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("  program "), std::string::npos) << text.out;
  const auto memory = nlohmann::json::parse(run({"plan", kLlamaFile, "--json"}).out)["memory"];
  EXPECT_EQ(memory["fits"], true);
  EXPECT_EQ(memory["ram"], memory["total"]);
  EXPECT_GT(memory["available"], memory["ram"]);
}

TEST_F(Cli, BadRequestsAreOneLine) {
  expect_error(run({"generate", kLlamaFile, "--ids", "1,2,99999"}), 1, "99999");
  std::ofstream(path("long.txt")) << std::string(5000, 'x');
  expect_error(run({"generate", kLlamaFile, "--file", path("long.txt")}), 1, "context");
  expect_error(run({"generate", kLlamaFile, "--file", path("absent.txt")}), 1, "absent.txt");
  expect_error(run({"logits", kLlamaFile, "--ids", "1,99999"}), 1, "99999");
  expect_error(run({"perplexity", kLlamaFile, path("long.txt"), "--ctx", "999999"}), 2, "--ctx");
}

TEST_F(Cli, GenerateJsonHasItsKeysInOrderAndAgreesWithItself) {
  const Outcome outcome = run({"generate", kLlamaFile, "The sea", "-n", "8", "--json", "--ignore-end"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1);
  const auto line = nlohmann::ordered_json::parse(outcome.out);
  EXPECT_EQ(line["generated_ids"].size(), 8U);
  EXPECT_EQ(line.begin().key(), "prompt_ids");
  EXPECT_EQ((--line.end()).key(), "metrics");
  EXPECT_EQ(line["metrics"]["per_forward_ms"]["n"], 8);
}

TEST_F(Cli, PromptsFromFileStandardInputAndIdsGiveTheSameTokens) {
  std::ofstream(path("prompt.txt")) << "The sea";
  const auto ids = [](const Outcome& outcome) { return nlohmann::json::parse(outcome.out)["generated_ids"]; };
  const auto expected = ids(run({"generate", kLlamaFile, "The sea", "-n", "8", "--json"}));
  EXPECT_EQ(ids(run({"generate", kLlamaFile, "--file", path("prompt.txt"), "-n", "8", "--json"})), expected);
  EXPECT_EQ(ids(run({"generate", kLlamaFile, "--file", "-", "-n", "8", "--json"}, {.input = "The sea"})), expected);
}

TEST_F(Cli, QuietPrintsTextAloneAndMetricsGoToStderr) {
  const Outcome loud = run({"generate", kLlamaFile, "The sea", "-n", "4"});
  EXPECT_NE(loud.err.find("time_to_first_token_ms"), std::string::npos);
  EXPECT_EQ(loud.out.find("time_to_first_token_ms"), std::string::npos);
  const Outcome quiet = run({"generate", kLlamaFile, "The sea", "-n", "4", "--quiet"});
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(quiet.out, loud.out);
}

TEST_F(Cli, ModelGeneratePrintsBackendCacheTextAndMetrics) {
  for (const bool kv : {false, true}) {
    std::vector<std::string> args = {"--backend", "scalar", kLlamaFile, "The sea", "5"};
    if (kv) args.insert(args.begin(), "--kv");
    const Outcome outcome = run(args, {}, "model-generate");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(outcome.out.starts_with(std::string("backend: scalar\nkv cache: ") + (kv ? "basic" : "off") + "\n"));
    EXPECT_NE(outcome.out.find("metrics:\n  time_to_first_token_ms: "), std::string::npos);
    EXPECT_NE(outcome.out.find("(n=5)\n"), std::string::npos);
  }
  expect_error(run({}, {}, "model-generate"), 2, "usage: model-generate");
  expect_error(run({kLlamaFile, "x", "many"}, {}, "model-generate"), 2, "many");
}

TEST_F(Cli, QuantizeWritesAModelThatRunsAndRefusesItsInput) {
  ASSERT_EQ(run({"quantize", kLlamaFile, path("q.gguf"), "q8_0", "--quiet"}).code, 0);
  EXPECT_EQ(run({"generate", path("q.gguf"), "The sea", "-n", "3", "--quiet"}).code, 0);
  fs::copy_file(kLlamaFile, path("in.gguf"));
  expect_error(run({"quantize", path("in.gguf"), path("in.gguf"), "q8_0"}), 2, "input itself");
  fs::create_symlink(path("in.gguf"), path("link.gguf"));
  expect_error(run({"quantize", path("in.gguf"), path("link.gguf"), "q8_0"}), 2, "input itself");
}

// A folder of a fixture, with a tokenizer of 94 characters, the space and an end.
std::string make_folder(const std::string& folder) {
  fs::create_directory(folder);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(fixture(std::string("folders/lfm2/") + name), folder + "/" + name);
  nlohmann::json vocabulary = {{"\u0120", 94}};
  for (int i = 0; i < 94; ++i) vocabulary[std::string(1, static_cast<char>('!' + i))] = i;
  std::ofstream(folder + "/tokenizer.json")
      << nlohmann::json{{"added_tokens", {{{"id", 95}, {"content", "<end>"}, {"special", true}}}},
                        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
  return folder;
}

TEST_F(Cli, AFolderGeneratesTheTextOfTheFileItIsConvertedTo) {
  const std::string folder = make_folder(path("model"));
  const auto text = [&](const std::string& model) {
    const Outcome outcome = run({"generate", model, "The sea", "-n", "12", "--temp", "0", "--quiet"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const Outcome converted = run({"convert", folder, path("f32.gguf"), "F32"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  EXPECT_NE(converted.err.find(" -> "), std::string::npos) << converted.err;
  const std::string made = text(folder);
  EXPECT_GT(made.size(), 5U);
  EXPECT_EQ(text(path("f32.gguf")), made);
  EXPECT_EQ(run({"convert", folder, path("q8.gguf"), "Q8_0", "--quiet"}).err, "");
  EXPECT_LT(fs::file_size(path("q8.gguf")), fs::file_size(path("f32.gguf")));
  EXPECT_FALSE(text(path("q8.gguf")).empty());
  EXPECT_NE(run({"inspect", folder}).out.find("lfm2"), std::string::npos);
}

TEST_F(Cli, ConvertSaysInOneLineWhatIsWrongWithAFolder) {
  const std::string folder = make_folder(path("model"));
  expect_error(run({"convert", folder, path("x.gguf"), "Q9"}), 2, "Q9");
  expect_error(run({"convert", kLlamaFile, path("x.gguf"), "Q8_0"}), 2, "is not a folder");
  expect_error(run({"convert", path("no"), path("x.gguf"), "Q8_0"}), 1, "no");
  expect_error(run({"convert", folder, path("no/such/x.gguf"), "Q8_0"}), 1, "x.gguf");
  std::ofstream(folder + "/config.json") << R"({"model_type": "sd"})";
  expect_error(run({"convert", folder, path("x.gguf"), "Q8_0"}), 1, "\"sd\"");
  expect_error(run({"generate", folder, "x"}), 1, "\"sd\"");
  fs::remove(folder + "/config.json");
  expect_error(run({"generate", folder, "x"}), 1, "config.json");
  EXPECT_FALSE(fs::exists(path("x.gguf")));
}

TEST_F(Cli, QuantizeSaysWhichRowsDoNotFitTheirType) {
  const Outcome outcome = run({"quantize", kLlamaFile, path("q.gguf"), "Q4_K_M"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("Q5_0 instead of Q4_K"), std::string::npos) << outcome.err;
}

TEST_F(Cli, QuantizeSaysWhenTheSourceIsQuantizedAlready) {
  ASSERT_EQ(run({"quantize", kLlamaFile, path("q.gguf"), "q8_0", "--quiet"}).err, "");
  const Outcome outcome = run({"quantize", path("q.gguf"), path("f.gguf"), "f16", "--quiet"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.err.find("quantized already"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("larger than the input"), std::string::npos) << outcome.err;
  expect_error(run({"quantize", kLlamaFile, path("q.gguf"), "q8_0", "--tensor-type", "attn_v"}), 2, "PATTERN=TYPE");
  expect_error(run({"quantize", kLlamaFile, path("q.gguf"), "q8_0", "--output-type", "Q9"}), 2, "Q9");
}

TEST_F(Cli, AnImatrixIsMeasuredAndUsed) {
  std::ofstream text(path("text.txt"));
  for (int i = 0; i < 2000; ++i) text << "The sea was " << i << " and the ship went on. ";
  text.close();
  const std::string builtin = INFERNO_SOURCE_DIR "/models/tiny-books-26m.gguf";
  const Outcome measured =
      run({"imatrix", builtin, path("text.txt"), "-o", path("i.gguf"), "--windows", "1", "--threads", "1"});
  ASSERT_EQ(measured.code, 0) << measured.err;
  EXPECT_NE(measured.err.find("56 matrices over 1 windows of 512"), std::string::npos) << measured.err;
  ASSERT_EQ(run({"imatrix", builtin, path("text.txt"), "-o", path("j.gguf"), "--windows", "1", "--threads", "3"}).code,
            0);
  const auto read = [](const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(read(path("i.gguf")), read(path("j.gguf")));
  EXPECT_EQ(run({"quantize", builtin, path("q.gguf"), "q2_k", "--imatrix", path("i.gguf"), "--quiet"}).code, 0);
  expect_error(run({"quantize", kLlamaFile, path("q.gguf"), "q4_0", "--imatrix", path("i.gguf")}), 1, "another model");
  expect_error(run({"quantize", kLlamaFile, path("q.gguf"), "q4_0", "--imatrix", path("text.txt")}), 1, "text.txt");
  expect_error(run({"imatrix", kLlamaFile, path("text.txt"), "-o", path("no/such/i.gguf"), "--windows", "1"}), 1,
               "i.gguf");
}

TEST_F(Cli, AFullDiskLeavesTheOldFileAndNoTemporary) {
  std::ofstream(path("out.gguf")) << "old";
  const Outcome outcome = run({"quantize", kLlamaFile, path("out.gguf"), "f16"}, {.file_size_limit = 4096});
  expect_error(outcome, 1, "out.gguf");
  std::string text;
  std::ifstream(path("out.gguf")) >> text;
  EXPECT_EQ(text, "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Cli, AnUnwritableOutputIsAnError) {
  expect_error(run({"quantize", kLlamaFile, path("no/such/folder/x.gguf"), "f16"}), 1, "x.gguf");
}

TEST_F(Cli, CtrlCPrintsTheMetricsSoFar) {
  // The built-in model on plain loops: thousands of tokens would take minutes.
  const Outcome outcome = run({"generate", "-n", "5000", "--backend", "scalar", "--ignore-end"}, {.signal = SIGINT});
  EXPECT_EQ(outcome.code, 128 + SIGINT) << outcome.err;
  EXPECT_NE(outcome.err.find("decode_tokens_per_second"), std::string::npos) << outcome.err;
}

TEST_F(Cli, TokenizeGoesThereAndBack) {
  const Outcome ids = run({"tokenize", kLlamaFile, "--ids", "The old ship"});
  ASSERT_EQ(ids.code, 0) << ids.err;
  EXPECT_EQ(run({"tokenize", kLlamaFile, "--decode", ids.out}).out, "The old ship");
  const Outcome lines =
      run({"tokenize", kLlamaFile, "--jsonl"}, {.input = "{\"text\": \"The old ship\"}\n{\"text\": \"\"}\n"});
  EXPECT_EQ(std::count(lines.out.begin(), lines.out.end(), '\n'), 2);
  expect_error(run({"tokenize", kLlamaFile, "--jsonl"}, {.input = "nonsense\n"}), 1, "line 1");
}

TEST_F(Cli, LogitsAreRawFloatsOfOneOrAllPositions) {
  const size_t row = 288 * sizeof(float);
  EXPECT_EQ(run({"logits", kLlamaFile, "--ids", "1,2,3"}).out.size(), row);
  const Outcome all = run({"logits", kLlamaFile, "--ids", "1,2,3", "--all"});
  EXPECT_EQ(all.out.size(), 3 * row);
  EXPECT_EQ(all.out.substr(2 * row), run({"logits", kLlamaFile, "--ids", "1,2,3"}).out);
}

TEST_F(Cli, InspectJsonListsEveryTensor) {
  const Outcome outcome = run({"inspect", kLlamaFile, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(nlohmann::json::parse(outcome.out)["tensors"].size(), 10U);
}

// Files made by hand to be wrong: each must behave as its manifest says, and never crash, hang or print two lines.
void check_manifest(const std::string& folder, const std::vector<std::string>& before,
                    const std::vector<std::string>& after) {
  const nlohmann::json manifest = read_json(folder + "/manifest.json");
  for (const auto& entry : manifest["cases"]) {
    const std::string file = entry["file"].get<std::string>();
    const std::string expect = entry["expect"].get<std::string>();
    std::vector<std::string> args = before;
    args.push_back(folder + "/" + file);
    args.insert(args.end(), after.begin(), after.end());
    const Outcome outcome = run(args);
    SCOPED_TRACE(file + ": " + outcome.err);
    EXPECT_TRUE(outcome.code == 0 || outcome.code == 1) << outcome.code;
    EXPECT_TRUE(expect != "loads" || outcome.code == 0);
    EXPECT_TRUE(expect != "clear error" || outcome.code == 1);
    if (outcome.code == 1) expect_error(outcome, 1, "");
  }
}

TEST_F(Cli, MalformedFilesBehaveAsTheirManifestSays) {
  for (const std::string& folder : shipped_data("gguf-malformed")) check_manifest(folder, {"inspect"}, {});
}

TEST_F(Cli, BadModelsBehaveAsTheirManifestSays) {
  for (const std::string& folder : shipped_data("gguf-badmodels")) {
    check_manifest(folder, {"generate"}, {"Once", "-n", "2", "--quiet"});
  }
}

}  // namespace
}  // namespace inferno::testing
