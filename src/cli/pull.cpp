// inferno pull, list and remove: models by name from a hub, and the folder they are kept in.
#include <fmt/core.h>

#include <memory>
#include <optional>

#include "base/error.h"
#include "base/standard_streams.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "engine/builtin_model.h"
#include "hub/hub.h"

namespace inferno::cli {
namespace {

hub::ModelName name_of(const std::string& text) {
  std::optional<hub::ModelName> name = hub::parse_name(text);
  if (!name)
    fail_usage("\"{}\" is not a name of the form ORG/NAME, ORG/NAME:TYPE or ORG/NAME:FILE.gguf", printable(text));
  return *name;
}

hub::OnFile show_files(bool quiet) {
  return [quiet](const hub::HubFile& file) {
    if (!quiet) print_stderr("pulling {} ({})\n", file.path, format_bytes(file.bytes));
    return draw_progress("pulling", quiet);
  };
}

}  // namespace

void add_pull(CLI::App& app) {
  struct Command {
    std::string name;
    bool quiet = false;
  };
  auto command = std::make_shared<Command>();
  CLI::App* sub = app.add_subcommand("pull", "get a model from the Hugging Face hub; prints its path");
  sub->footer(
      "The same name works wherever a model is expected; what is not there yet is pulled then.\n"
      "HF_ENDPOINT names another hub, HF_TOKEN a token for models that need one, INFERNO_MODELS the folder.\n"
      "Examples:\n"
      "  inferno pull Qwen/Qwen3-0.6B-GGUF:Q8_0\n"
      "  inferno generate Qwen/Qwen3-0.6B-GGUF:Q8_0 --chat \"What is a GPU?\"");
  sub->add_option("name", command->name, "ORG/NAME, ORG/NAME:TYPE or ORG/NAME:FILE.gguf")->required();
  sub->add_flag("--quiet", command->quiet, "no progress");
  sub->callback([command, sub] {
    hub::HubOptions options = hub::hub_options_from_environment();
    options.offline = options.offline || sub->count("--offline") > 0;
    const hub::ModelCache cache(hub::default_cache_folder());
    write_stdout(hub::get_model(name_of(command->name), cache, options, true, show_files(command->quiet)) + "\n");
  });
}

void add_list(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("list", "the models that were pulled");
  sub->callback([] {
    const hub::ModelCache cache(hub::default_cache_folder());
    uint64_t total = 0;
    for (const hub::CachedFile& file : cache.list()) {
      write_stdout(fmt::format("{:>10}  {}:{}\n", format_bytes(file.bytes), printable(file.repository),
                               printable(file.file, 200)));
      total += file.bytes;
    }
    write_stdout(fmt::format("{:>10}  in {}\n", format_bytes(total), printable(cache.folder(), 400)));
  });
}

void add_remove(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  CLI::App* sub = app.add_subcommand("remove", "remove a model that was pulled");
  sub->add_option("name", *name, "ORG/NAME (all of it), ORG/NAME:TYPE or ORG/NAME:FILE.gguf")->required();
  sub->callback([name] {
    const hub::ModelCache cache(hub::default_cache_folder());
    for (const hub::CachedFile& file : cache.remove(name_of(*name))) {
      write_stdout(fmt::format("removed {} ({})\n", file.path, format_bytes(file.bytes)));
    }
  });
}

void add_hub_names(CLI::App& app) {
  auto offline = std::make_shared<bool>(false);
  for (CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string& name = sub->get_name();
    if (name == "list" || name == "remove" || name == "machine") continue;
    sub->add_flag("--offline", *offline, "fetch nothing: only models that are here already");
  }
  set_model_finder([offline](const std::string& text) -> std::string {
    const std::optional<hub::ModelName> name = hub::parse_name(text);
    if (!name) return "";
    hub::HubOptions options = hub::hub_options_from_environment();
    options.offline = options.offline || *offline;
    return hub::get_model(*name, hub::ModelCache(hub::default_cache_folder()), options, false, show_files(false));
  });
}

}  // namespace inferno::cli
