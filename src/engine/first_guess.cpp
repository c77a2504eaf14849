#include "engine/first_guess.h"

#include <algorithm>

namespace inferno {

StepCost first_guess(const ModelConfig& c, uint64_t weight_bytes, const Backend& backend) {
  const bool device = !backend.cpu_numerics();
  const double workers = backend.workers();
  const double bytes_per_second = device ? 1e12 : 1e10 * std::min(workers, 8.0);
  const double operations_per_second = device ? 5e13 : (backend.name() == "scalar" ? 2e9 : 1e11) * workers;
  double elements = 0;  // of the matrices of all layers
  double attended = 0;  // elements of queries, of all layers
  for (const LayerConfig& layer : c.layers) {
    const auto attention = static_cast<double>(layer.attention_width());
    const double recurrent = layer.recurrent.conv_channels + 2.0 * static_cast<double>(layer.recurrent.value_width());
    elements +=
        c.width * (2 * attention + 2.0 * static_cast<double>(layer.kv_width()) + recurrent + 3.0 * layer.active_ffn());
    attended += attention;
  }
  return StepCost({static_cast<double>(weight_bytes) / bytes_per_second,
                   2.0 * c.width * c.vocabulary / operations_per_second, 2 * elements / operations_per_second,
                   4 * attended / operations_per_second});
}

}  // namespace inferno
