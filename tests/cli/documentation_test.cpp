// The manual page, the completions and the list of environment variables say what the program has.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "support/program.h"
#include "support/sanitized.h"

namespace inferno::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = INFERNO_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The subcommands that --help lists.
std::set<std::string> subcommands() {
  const std::string help = run({"--help"}).out;
  std::set<std::string> names;
  const std::string list = help.substr(help.find("Subcommands:"));
  const std::regex line("\n  ([a-z]+) ");
  for (std::sregex_iterator at(list.begin(), list.end(), line), end; at != end; ++at) names.insert((*at)[1]);
  return names;
}

TEST(Documentation, TheManualPageHasEverySubcommandAndOption) {
  const std::string man = run({"man"}).out;
  const std::set<std::string> names = subcommands();
  EXPECT_GE(names.size(), 15U);
  for (const std::string& name : names) EXPECT_NE(man.find(".SS inferno " + name + "\n"), std::string::npos) << name;
  EXPECT_NE(man.find("\\-\\-tensor\\-type"), std::string::npos);
  // No line of text may begin with what roff takes for a request.
  const std::regex request(R"(\n\.(?!TH |SH |SS |TP|B |I |nf|fi|PP))");
  EXPECT_FALSE(std::regex_search(man, request));
}

TEST_F(Folder, BashCompletesSubcommandsAndOptions) {
  const Outcome script = run({"completions", "bash"});
  ASSERT_EQ(script.code, 0);
  std::ofstream(path("complete.bash")) << script.out;
  const auto completed = [&](const std::string& words, int at) {
    const std::string command = "bash -c '. " + path("complete.bash") + "; COMP_WORDS=(" + words +
                                "); COMP_CWORD=" + std::to_string(at) + "; _inferno; echo ${COMPREPLY[@]}' > " +
                                path("out");
    EXPECT_EQ(std::system(command.c_str()), 0);
    return read(path("out"));
  };
  EXPECT_EQ(completed("inferno quan", 1), "quantize\n");
  EXPECT_EQ(completed("inferno quantize --ima", 2), "--imatrix\n");
  EXPECT_EQ(completed("inferno perplexity --win", 2), "--windows\n");
}

TEST(Documentation, TheOtherShellsHaveEverySubcommand) {
  const std::string zsh = run({"completions", "zsh"}).out;
  const std::string fish = run({"completions", "fish"}).out;
  for (const std::string& name : subcommands()) {
    EXPECT_NE(zsh.find("'" + name + ":"), std::string::npos) << name;
    EXPECT_NE(fish.find(" -a " + name + " "), std::string::npos) << name;
  }
  EXPECT_EQ(run({"completions", "tcsh"}).code, 2);
}

// Names of environment variables that a file reads.
std::set<std::string> variables_in(const fs::path& folder) {
  const std::regex call(R"((?:getenv|environment)\("([A-Za-z_]+)\")");
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if (extension != ".cpp" && extension != ".h" && extension != ".cu" && extension != ".mm") continue;
    const std::string text = read(entry.path());
    for (std::sregex_iterator at(text.begin(), text.end(), call), end; at != end; ++at) names.insert((*at)[1]);
  }
  return names;
}

TEST(Documentation, EveryEnvironmentVariableIsNamed) {
  if (kSanitized) GTEST_SKIP() << "it reads sources, which are the same without a sanitizer";
  const std::string document = read(kSource / "docs/environment.md");
  const std::string man = run({"man"}).out;
  const std::set<std::string> ours = variables_in(kSource / "src");
  EXPECT_TRUE(ours.contains("INFERNO_THREADS") && ours.contains("HF_TOKEN") && ours.contains("NO_COLOR"));
  for (const std::string& name : ours) {
    EXPECT_NE(document.find("`" + name + "`"), std::string::npos) << name << " is not in docs/environment.md";
    EXPECT_NE(man.find(".B " + name + "\n"), std::string::npos) << name << " is not in src/cli/environment.cpp";
  }
  for (const char* folder : {"tests", "bench", "tools"}) {
    for (const std::string& name : variables_in(kSource / folder)) {
      EXPECT_NE(document.find("`" + name + "`"), std::string::npos) << name << " is not in docs/environment.md";
    }
  }
}

// getenv must have the name beside it, or the scan above is blind.
TEST(Documentation, NoVariableIsReadByAComputedName) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(kSource / "src")) {
    if (entry.path().extension() != ".cpp") continue;
    if (read(entry.path()).find("getenv(name)") != std::string::npos) {
      files.insert(fs::relative(entry.path(), kSource).string());
    }
  }
  // Each passes on names that thread_request.cpp, or the file itself, has in environment("...").
  EXPECT_EQ(files, (std::set<std::string>{"src/backend/factory.cpp", "src/cli/cli.cpp", "src/cli/line_editor.cpp",
                                          "src/comm/world.cpp", "src/hub/hub.cpp", "src/threading/thread_plan.cpp"}));
}

}  // namespace
}  // namespace inferno::testing
