// inferno man and inferno completions SHELL: the manual page and the shells' completions, from the same options and
// texts as --help. `make install` installs what they print.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cli.h"
#include "cli/environment.h"

namespace inferno::cli {
namespace {

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  std::vector<const CLI::App*> result;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_group().empty()) result.push_back(sub);
  }
  std::ranges::sort(result, {}, [](const CLI::App* sub) { return sub->get_name(); });
  return result;
}

// What an option is called: {"-n", "--max-tokens"}; nothing for a positional argument.
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

// ---- the manual page

std::string roff(std::string text) {
  text = replaced(replaced(std::move(text), "\\", "\\e"), "-", "\\-");
  return replaced(replaced(std::move(text), "\n.", "\n\\&."), "\n'", "\n\\&'");
}

std::string roff_options(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    std::string title = option->get_positional() ? option->get_single_name() : "";
    for (const std::string& name : names_of(*option)) title += (title.empty() ? "" : ", ") + name;
    if (!option->get_positional() && takes_value(*option)) title += " " + option->get_type_name();
    text += fmt::format(".TP\n.B {}\n{}\n", roff(title), roff(option->get_description()));
  }
  return text;
}

std::string man_page(const CLI::App& app) {
  std::string text = fmt::format(
      ".TH INFERNO 1 \"\" \"inferno {}\" \"User Commands\"\n.SH NAME\ninferno \\- runs large language models\n"
      ".SH SYNOPSIS\n.B inferno\n.I command\n[options]\n.SH DESCRIPTION\n.nf\n{}\n.fi\n.SH COMMANDS\n",
      INFERNO_VERSION, roff(app.get_description()));
  for (const CLI::App* sub : subcommands_of(app)) {
    text += fmt::format(".SS inferno {}\n{}\n", roff(sub->get_name()), roff(sub->get_description()));
    text += roff_options(*sub);
    if (!sub->get_footer().empty()) text += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(sub->get_footer()));
  }
  text += ".SH ENVIRONMENT\n";
  for (const EnvironmentVariable& variable : environment_variables()) {
    text += fmt::format(".TP\n.B {}\n{}\n", variable.name, roff(std::string(variable.meaning)));
  }
  return text;
}

// ---- completions

std::string bash_completions(const CLI::App& app) {
  std::string commands;
  std::string cases;
  for (const CLI::App* sub : subcommands_of(app)) {
    commands += (commands.empty() ? "" : " ") + sub->get_name();
    std::string names;
    for (const CLI::Option* option : sub->get_options()) {
      for (const std::string& name : names_of(*option)) names += (names.empty() ? "" : " ") + name;
    }
    cases += fmt::format("    {}) words=\"{}\" ;;\n", sub->get_name(), names);
  }
  return fmt::format(
      "_inferno() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} words=\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${{COMP_WORDS[1]}} in\n{}"
      "  esac\n"
      "  case $word in\n"
      "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _inferno inferno\n",
      commands, cases);
}

std::string zsh_completions(const CLI::App& app) {
  // Inside '...', with brackets and colons as _arguments reads them.
  const auto quoted = [](std::string text) {
    text = replaced(replaced(std::move(text), "\n", " "), "'", "'\\''");
    return replaced(replaced(replaced(std::move(text), "[", "\\["), "]", "\\]"), ":", "\\:");
  };
  std::string commands;
  std::string cases;
  for (const CLI::App* sub : subcommands_of(app)) {
    commands += fmt::format("    '{}:{}'\n", sub->get_name(), quoted(sub->get_description()));
    cases += fmt::format("    {})\n      _arguments \\\n", sub->get_name());
    for (const CLI::Option* option : sub->get_options()) {
      for (const std::string& name : names_of(*option)) {
        cases += fmt::format("        '{}[{}]{}' \\\n", name, quoted(option->get_description()),
                             takes_value(*option) ? ":value:_files" : "");
      }
    }
    cases += "        '*:file:_files'\n      ;;\n";
  }
  return fmt::format(
      "#compdef inferno\n"
      "_inferno() {{\n"
      "  local -a commands=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n{}"
      "  esac\n"
      "}}\n"
      "_inferno \"$@\"\n",
      commands, cases);
}

std::string fish_completions(const CLI::App& app) {
  const auto quoted = [](std::string text) {
    text = replaced(replaced(std::move(text), "\n", " "), "\\", "\\\\");
    return "'" + replaced(std::move(text), "'", "\\'") + "'";
  };
  std::string text;
  for (const CLI::App* sub : subcommands_of(app)) {
    text += fmt::format("complete -c inferno -n __fish_use_subcommand -a {} -d {}\n", sub->get_name(),
                        quoted(sub->get_description()));
    for (const CLI::Option* option : sub->get_options()) {
      if (names_of(*option).empty()) continue;
      std::string names;
      for (const std::string& name : option->get_snames()) names += " -s " + name;
      for (const std::string& name : option->get_lnames()) names += " -l " + name;
      text += fmt::format("complete -c inferno -n '__fish_seen_subcommand_from {}'{}{} -d {}\n", sub->get_name(), names,
                          takes_value(*option) ? " -r" : "", quoted(option->get_description()));
    }
  }
  return text;
}

}  // namespace

void add_documentation(CLI::App& app) {
  CLI::App* man = app.add_subcommand("man", "print the manual page")->group("");
  man->callback([&app] { write_stdout(man_page(app)); });

  CLI::App* completions = app.add_subcommand("completions", "print a shell's completions")->group("");
  auto shell = std::make_shared<std::string>();
  completions->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completions->callback([&app, shell] {
    write_stdout(*shell == "bash"  ? bash_completions(app)
                 : *shell == "zsh" ? zsh_completions(app)
                                   : fish_completions(app));
  });
}

}  // namespace inferno::cli
