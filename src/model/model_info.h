// What is in a model file, as plain data: for people and programs that look before they load.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "file/model_file.h"
#include "inferno/tools.h"

namespace inferno {

// Adds a tensor to the total of its type; the totals stay in order, largest first.
void count_tensor(std::string_view type, uint64_t bytes, std::vector<TensorTypeTotal>& totals);

// inferno/tools.h says what it returns; the version and the number of parts are not looked at.
[[nodiscard]] ModelInfo inspect_model(const ModelFile& file);

}  // namespace inferno
