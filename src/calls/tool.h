// A tool that a model may call, as requests name it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace inferno::calls {

struct Tool {
  std::string name;
  nlohmann::ordered_json parameters = nlohmann::ordered_json::object();  // a JSON schema of the arguments
  bool strict = false;  // a schema that cannot be enforced is an Error, whatever is asked
};

using ToolList = std::vector<Tool>;

}  // namespace inferno::calls
