// JSON schemas with instances against the grammar engine: right, refused, wrong; compile and mask times in CPU time.
//
//   grammar_bench VOCABULARY.gguf [--verbose] FILE...
//
// A file is one case or an array of them, as JSONSchemaBench's MaskBench and JSON-Schema-Test-Suite write them:
// {"schema": ..., "tests": [{"data": ..., "valid": true}, ...]}. An instance is written without space, as the tokens
// the vocabulary makes of it, and the mask is found before each of them. A valid one that is not taken is tried once
// more in the form in which the grammar takes it: properties in another order, 1 for 1.0.
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/guarded_main.h"
#include "gguf/gguf.h"
#include "grammar/matcher.h"
#include "grammar/source.h"
#include "grammar/test_grammar.h"
#include "taken_form.h"
#include "tokenizer/tokenizer.h"

namespace inferno::grammar {
namespace {

using Json = nlohmann::ordered_json;

// What --verbose names, in us.
constexpr double kSlowCompile = 20'000;
constexpr double kSlowMask = 2000;

double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void print_times(const char* what, std::vector<double>& us) {
  if (us.empty()) return;
  std::ranges::sort(us);
  double sum = 0;
  for (const double x : us) sum += x;
  const auto at = [&](double share) { return us[static_cast<size_t>(share * static_cast<double>(us.size() - 1))]; };
  fmt::print("{}: {} times, us: mean {:.1f}, 50 % {:.1f}, 99 % {:.1f}, 99.9 % {:.1f}, max {:.1f}\n", what, us.size(),
             sum / static_cast<double>(us.size()), at(0.5), at(0.99), at(0.999), us.back());
}

struct Bench {
  std::unique_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenTrie> trie;
  bool verbose = false;

  std::vector<double> compile_us, mask_us;
  std::map<std::string, int> refusals;
  int schemas = 0, refused = 0, instances = 0, accepted_wrongly = 0, not_taken = 0, other_form = 0;

  // Whether the text fits, token by token.
  bool takes(Grammar& grammar, std::span<const int32_t> ids) {
    Matcher matcher(grammar);
    const auto is_allowed = [&](int32_t token) {
      const double begin = cpu_us();
      const auto mask = matcher.mask();
      mask_us.push_back(cpu_us() - begin);
      const auto i = static_cast<size_t>(token);
      return (mask[i / 32] >> (i % 32) & 1) != 0;
    };
    for (const int32_t token : ids) {
      const bool allowed = is_allowed(token);
      const bool accepted = matcher.accept(token);
      if (allowed != accepted) fail("a mask and its matcher disagree about the token {}", token);
      if (!accepted) return false;
    }
    return is_allowed(trie->end_tokens()[0]);
  }

  // Why a valid instance is not taken: because of its form, or otherwise.
  void explain(const Source& source, const Json& instance, const std::string& where) {
    ++not_taken;
    const Limits limits;
    Grammar bytes(parse_source(source, limits), byte_trie(), limits);
    const bool taken = in_taken_form(bytes, instance).has_value();
    other_form += taken ? 1 : 0;
    if (!taken || verbose)
      fmt::print("{} {}: {}\n", taken ? "taken in another form" : "NOT TAKEN", where, instance.dump().substr(0, 300));
  }

  void refuse(const std::string& message, const std::string& where) {
    ++refused;
    const size_t begin = message.find('`');
    const size_t end = begin == std::string::npos ? begin : message.find('`', begin + 1);
    ++refusals[end == std::string::npos ? message.substr(0, 60) : message.substr(begin + 1, end - begin - 1)];
    if (verbose) fmt::print("refused {}: {}\n", where, message);
  }

  void run(const Json& test, const std::string& where) {
    ++schemas;
    const Source source{.kind = SourceKind::json_schema, .text = test.at("schema").dump(), .choices = {}};
    const double begin = cpu_us();
    std::unique_ptr<Grammar> grammar;
    try {
      const Limits limits;
      grammar = std::make_unique<Grammar>(parse_source(source, limits), trie, limits);
    } catch (const Error& error) {
      const std::string message = error.what();
      const bool all_invalid =
          std::ranges::none_of(test.at("tests"), [](const Json& t) { return t.at("valid") == true; });
      // A schema that nothing fits is refused by saying so.
      if (message.starts_with("no text fits") && all_invalid) return;
      return refuse(message, where);
    }
    compile_us.push_back(cpu_us() - begin);
    if (verbose && compile_us.back() > kSlowCompile)
      fmt::print("slow to compile {}: {:.0f} us\n", where, compile_us.back());
    const size_t before = mask_us.size();
    for (const Json& instance : test.at("tests")) {
      ++instances;
      const bool valid = instance.at("valid").get<bool>();
      const std::string text = instance.at("data").dump();
      const std::vector<int32_t> ids = tokenizer->encode(text, {.parse_special = false});
      if (tokenizer->decode(ids) != text) continue;  // a vocabulary that normalizes cannot write it
      if (takes(*grammar, ids) == valid) continue;
      if (valid) {
        explain(source, instance.at("data"), where);
      } else {
        ++accepted_wrongly;
        fmt::print("WRONGLY TAKEN {}: {}\n", where, text.substr(0, 300));
      }
    }
    const auto own = std::span(mask_us).subspan(before);
    const auto slow = std::ranges::count_if(own, [](double us) { return us > kSlowMask; });
    if (verbose && slow > 0) {
      fmt::print("slow masks {}: {} of {}, at most {:.0f} us\n", where, slow, own.size(),
                 *std::ranges::max_element(own));
    }
  }
};

int run(int argc, char** argv) {
  const std::span<char* const> args(argv + 1, static_cast<size_t>(argc - 1));
  if (args.size() < 2) fail_usage("grammar_bench VOCABULARY.gguf [--verbose] FILE...");
  Bench bench;
  bench.tokenizer = Tokenizer::load(GgufFile::open(args[0]));
  if (bench.tokenizer == nullptr) fail("\"{}\" has no vocabulary", args[0]);
  bench.trie = std::make_shared<const TokenTrie>(*bench.tokenizer);
  for (const std::string file : args.subspan(1)) {
    if (file == "--verbose") {
      bench.verbose = true;
      continue;
    }
    std::ifstream in(file);
    const Json cases = Json::parse(in, nullptr, false);
    if (cases.is_object()) bench.run(cases, file);
    if (!cases.is_array()) continue;
    for (const Json& one : cases) bench.run(one, file + ": " + one.value("description", ""));
  }
  fmt::print("schemas: {}, refused {} ({:.1f} % supported)\n", bench.schemas, bench.refused,
             100.0 * (bench.schemas - bench.refused) / std::max(1, bench.schemas));
  fmt::print("instances: {}, wrongly taken {}, valid but not taken as they are {}, of these {} in another form\n",
             bench.instances, bench.accepted_wrongly, bench.not_taken, bench.other_form);
  std::vector<std::pair<int, std::string>> reasons;
  for (const auto& [reason, count] : bench.refusals) reasons.emplace_back(count, reason);
  std::ranges::sort(reasons, std::greater());
  for (const auto& [count, reason] : reasons) fmt::print("  refused {:5} {}\n", count, reason);
  print_times("compile", bench.compile_us);
  print_times("mask", bench.mask_us);
  return 0;
}

}  // namespace
}  // namespace inferno::grammar

int main(int argc, char** argv) {
  return inferno::guarded_main("grammar_bench", inferno::grammar::run, argc, argv);
}
