// The options that let one see through a run: --profile, --profile-json, --trace, --shadow.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "engine/engine.h"

namespace inferno::cli {

class Instruments {
 public:
  Instruments();
  ~Instruments();
  Instruments(const Instruments&) = delete;
  Instruments& operator=(const Instruments&) = delete;

  void add_to(CLI::App& command);
  [[nodiscard]] bool writes_files() const { return !trace_.empty() || !profile_json_.empty(); }
  // Decorates the engine's backend as asked, afresh for every engine; files are opened now. This object must outlive
  // the engine.
  void install(EngineOptions& options);
  // After the run: reports on stderr, files in place. The engine must still exist.
  void finish();

 private:
  struct Parts;

  bool profile_ = false;
  std::string profile_json_;
  std::string trace_;
  int64_t shadow_ = 0;
  std::unique_ptr<Parts> parts_;
};

}  // namespace inferno::cli
