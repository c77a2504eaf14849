// inferno serve in a build without Boost: says what is missing.
#include "base/error.h"
#include "cli/cli.h"

namespace inferno::cli {

void add_serve(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("serve", "not in this build, which was made without Boost");
  command->allow_extras();
  command->callback([] { fail_usage("this build cannot serve; install the headers of Boost and build it again"); });
}

}  // namespace inferno::cli
