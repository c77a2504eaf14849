#include "model/split.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "base/error.h"
#include "model/layer_weights.h"
#include "model/tensor_names.h"
#include "model/tensor_source.h"

namespace inferno {
namespace {

// Rows where types do not ask for more: a vector register and a cache line of results.
constexpr int32_t kRowUnit = 32;

// Divides things among ranks by their sizes.
class Divider {
 public:
  Divider(const ModelFile& file, int ranks, std::span<const int32_t> sizes) : file_(file), ranks_(ranks) {
    if (!sizes.empty() && sizes.size() != static_cast<size_t>(ranks)) {
      fail_usage("`split` has {} sizes for {} ranks; give one for each", sizes.size(), ranks);
    }
    ends_.push_back(0);
    for (int r = 0; r < ranks; ++r) {
      const int32_t size = sizes.empty() ? 1 : sizes[static_cast<size_t>(r)];
      if (size < 1) fail_usage("`split` has the size {}; every rank needs 1 or more", size);
      ends_.push_back(ends_.back() + size);
    }
  }

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] const ModelFile& file() const { return file_; }
  // Of ranks that follow each other.
  [[nodiscard]] int64_t size_of(int first, int count) const {
    return ends_[static_cast<size_t>(first) + static_cast<size_t>(count)] - ends_[static_cast<size_t>(first)];
  }
  // The elements of one rank when `count` are cut at multiples of `unit`; nothing when a rank would have none.
  [[nodiscard]] std::vector<Part> divide(int64_t count, int64_t unit) const {
    const int64_t units = (count + unit - 1) / unit;
    if (units < ranks_) return {};
    std::vector<Part> parts;
    int64_t begin = 0;
    for (int r = 0; r < ranks_; ++r) {
      const int64_t share = ends_[static_cast<size_t>(r) + 1];
      int64_t end = (2 * units * share + ends_.back()) / (2 * ends_.back());  // to the nearest
      // At least one, and one for each that comes after.
      end = std::clamp<int64_t>(end, begin + 1, units - (ranks_ - 1 - r));
      parts.push_back(
          {static_cast<int32_t>(begin * unit), static_cast<int32_t>(std::min(end * unit, count) - begin * unit)});
      begin = end;
    }
    return parts;
  }
  // Elements of a block of a tensor's columns.
  [[nodiscard]] int64_t block_of(const std::string& tensor) const {
    const FileTensor* found = file_.find_tensor(tensor);
    return found == nullptr || !found->dtype ? 1 : dtype_info(*found->dtype).block_size;
  }
  [[noreturn]] void fail_blocks(const std::string& tensor, int64_t columns, int64_t unit) const {
    fail(
        "\"{}\": {} has {} columns, which can only be cut every {}: too few pieces for {} ranks; use fewer ranks or "
        "a type with smaller blocks",
        file_.path(), tensor, columns, unit, ranks_);
  }

 private:
  const ModelFile& file_;
  int ranks_;
  std::vector<int64_t> ends_;  // sums of the sizes
};

// Ranks share kv heads: each rank has query heads of one of them.
void share_kv_heads(const Divider& divider, const LayerConfig& layer, const std::string& output, int64_t block,
                    size_t index, std::vector<ModelShare>& shares) {
  const int32_t group = layer.q_heads / layer.kv_heads;
  if (divider.ranks() % layer.kv_heads != 0) {
    fail_usage(
        "\"{}\": {} kv heads cannot be divided among {} ranks; use a number of ranks that they divide, or at "
        "most {}",
        divider.file().path(), layer.kv_heads, divider.ranks(), layer.kv_heads);
  }
  const int32_t ranks_per_head = divider.ranks() / layer.kv_heads;
  const int64_t unit = block / std::gcd<int64_t>(block, layer.value_dim());
  if (group / unit < ranks_per_head) divider.fail_blocks(output, layer.output_width(), block);
  const Divider within(divider.file(), ranks_per_head, {});
  const std::vector<Part> parts = within.divide(group, unit);
  for (int r = 0; r < divider.ranks(); ++r) {
    const int32_t head = r / ranks_per_head;
    const Part& part = parts[static_cast<size_t>(r % ranks_per_head)];
    LayerShare& share = shares[static_cast<size_t>(r)].layers[index];
    share.kv_heads = {head, 1};
    share.q_heads = {head * group + part.begin, part.count};
  }
}

void divide_heads(const Divider& divider, const LayerConfig& layer, size_t index, std::vector<ModelShare>& shares) {
  const std::string output = layer_tensor_name(static_cast<int32_t>(index), "attn_output.weight");
  const int32_t group = layer.q_heads / layer.kv_heads;
  if (divider.ranks() > layer.q_heads) {
    fail_usage("\"{}\" has {} attention heads, fewer than the {} ranks; use at most {}", divider.file().path(),
               layer.q_heads, divider.ranks(), layer.q_heads);
  }
  const int64_t block = divider.block_of(output);
  // Columns of the output projection that go with one kv head, and kv heads that make whole blocks.
  const int64_t columns = int64_t{group} * layer.value_dim();
  const int64_t unit = block / std::gcd(block, columns);
  const std::vector<Part> parts = divider.divide(layer.kv_heads, unit);
  if (parts.empty()) {
    if (layer.kv_heads >= divider.ranks()) divider.fail_blocks(output, layer.output_width(), unit * columns);
    return share_kv_heads(divider, layer, output, block, index, shares);
  }
  for (size_t r = 0; r < shares.size(); ++r) {
    shares[r].layers[index].kv_heads = parts[r];
    shares[r].layers[index].q_heads = {parts[r].begin * group, parts[r].count * group};
  }
}

void divide_ffn(const Divider& divider, int32_t index, std::string_view part, int32_t ffn, Part LayerShare::* share,
                std::vector<ModelShare>& shares) {
  if (ffn == 0) return;
  const std::string down = layer_tensor_name(index, part);
  const int64_t block = divider.block_of(down);
  std::vector<Part> parts = divider.divide(ffn, std::lcm<int64_t>(block, kRowUnit));
  if (parts.empty()) parts = divider.divide(ffn, block);
  if (parts.empty()) divider.fail_blocks(down, ffn, block);
  for (size_t r = 0; r < shares.size(); ++r) shares[r].layers[static_cast<size_t>(index)].*share = parts[r];
}

// What the ranks' sums cannot express.
void refuse(const ModelFile& file, const ModelConfig& config, size_t index) {
  const LayerConfig& layer = config.layers[index];
  const char* what = layer.is_recurrent()                     ? "is recurrent, and states are"
                     : layer.mixer == Mixer::latent_attention ? "has latent attention, whose cache is"
                     : layer.mixer != Mixer::attention        ? "has no attention, and such layers are"
                     : layer.qk_norm == QkNorm::rows          ? "normalizes whole rows of queries, which are"
                     : config.layer_inputs > 0 || !layer.mlp  ? "has inputs or parts that are"
                     : layer.output_scale != 1                ? "scales the stream, whose parts are"
                     : layer.experts.beside_mlp               ? "has experts beside an MLP, which are"
                                                              : nullptr;
  if (what == nullptr) return;
  fail("\"{}\": layer {} {} not divided among ranks; run this model on one rank", file.path(), index, what);
}

// Divides every layer among ranks.
std::vector<ModelShare> divide_layers(const ModelFile& file, const ModelConfig& config, int ranks,
                                      std::span<const int32_t> sizes) {
  if (ranks == 1) return {whole_share(config)};
  const Divider divider(file, ranks, sizes);
  std::vector<Part> rows = divider.divide(config.vocabulary, kRowUnit);
  if (rows.empty()) rows = divider.divide(config.vocabulary, 1);
  if (rows.empty()) fail_usage("\"{}\" has fewer tokens than there are ranks ({})", file.path(), ranks);
  std::vector<ModelShare> shares(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    ModelShare& share = shares[static_cast<size_t>(r)];
    share = {
        .rank = r, .ranks = ranks, .own_layers = {0, config.layer_count()}, .vocabulary = rows[static_cast<size_t>(r)]};
    share.layers.resize(config.layers.size());
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const auto index = static_cast<int32_t>(i);
    refuse(file, config, i);
    divide_heads(divider, layer, i, shares);
    // A cache is read by the heads that it was written for.
    if (const int32_t from = layer.kv_source; from != kOwnCache) {
      for (const ModelShare& share : shares) {
        if (share.layers[static_cast<size_t>(from)].kv_heads == share.layers[i].kv_heads) continue;
        fail("\"{}\": layer {} reads the cache of layer {} and is divided differently; run this model on one rank",
             file.path(), i, from);
      }
    }
    const bool experts = layer.experts.count > 0;
    divide_ffn(divider, index, experts ? "ffn_down_exps.weight" : "ffn_down.weight",
               experts ? layer.experts.ffn : layer.ffn, &LayerShare::ffn, shares);
    divide_ffn(divider, index, "ffn_down_shexp.weight", layer.experts.shared_ffn, &LayerShare::shared_ffn, shares);
  }
  return shares;
}

// What stages cannot hand on.
void refuse_stages(const ModelFile& file, const ModelConfig& config) {
  if (config.layer_inputs > 0) fail("\"{}\": inputs of layers are not divided among stages; use one", file.path());
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!config.layers[i].is_recurrent()) continue;
    fail("\"{}\": layer {} is recurrent, and states are not divided among stages; run this model on one rank",
         file.path(), i);
  }
}

// The layers of each stage so that the largest is as small as can be: bytes in proportion to the stages' sizes, those
// of embedding and head counted with the first. Layers that share a cache stay together.
std::vector<Part> divide_stages(const ModelFile& file, const ModelConfig& config, std::span<const int64_t> sizes) {
  const auto stages = sizes.size();
  const auto layers = config.layers.size();
  const ModelShare whole = whole_share(config);
  std::vector<uint64_t> ends{share_bytes(file, config, whole, kNoLayer)};  // sums of bytes before each layer
  std::vector<bool> can_begin(layers + 1, true);
  for (size_t i = 0; i < layers; ++i) {
    ends.push_back(ends.back() + share_bytes(file, config, whole, static_cast<int32_t>(i)));
    const int32_t source = config.layers[i].kv_source;
    for (size_t j = source == kOwnCache ? i : static_cast<size_t>(source); j < i; ++j) can_begin[j + 1] = false;
  }
  // best[s][n]: the least load of the fullest of s + 1 stages that have n layers;
  // from[s][n]: the layers before the last of them.
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(stages, std::vector<double>(layers + 1, kNone));
  std::vector<std::vector<size_t>> from(stages, std::vector<size_t>(layers + 1, 0));
  const auto load = [&](size_t stage, size_t begin, size_t end) {
    return static_cast<double>(ends[end] - (stage == 0 ? 0 : ends[begin])) / static_cast<double>(sizes[stage]);
  };
  for (size_t n = 1; n <= layers; ++n) best[0][n] = load(0, 0, n);
  for (size_t s = 1; s < stages; ++s) {
    for (size_t n = s + 1; n <= layers; ++n) {
      for (size_t begin = s; begin < n; ++begin) {
        if (!can_begin[begin]) continue;
        const double fullest = std::max(best[s - 1][begin], load(s, begin, n));
        if (fullest >= best[s][n]) continue;
        best[s][n] = fullest;
        from[s][n] = begin;
      }
    }
  }
  if (best[stages - 1][layers] == kNone) {
    fail_usage("\"{}\" has {} layers that cannot be divided among {} stages; use fewer", file.path(), layers, stages);
  }
  std::vector<Part> parts(stages);
  size_t end = layers;
  for (size_t s = stages; s-- > 0; end = from[s][end]) {
    const size_t begin = from[s][end];
    parts[s] = {static_cast<int32_t>(begin), static_cast<int32_t>(end - begin)};
  }
  return parts;
}

}  // namespace

ModelShare whole_share(const ModelConfig& config) {
  ModelShare share{.own_layers = {0, config.layer_count()}, .vocabulary = {0, config.vocabulary}};
  for (const LayerConfig& layer : config.layers) {
    share.layers.push_back({.q_heads = {0, layer.q_heads},
                            .kv_heads = {0, layer.kv_heads},
                            .ffn = {0, layer.experts.count > 0 ? layer.experts.ffn : layer.ffn},
                            .shared_ffn = {0, layer.experts.shared_ffn}});
  }
  return share;
}

std::vector<ModelShare> split_model(const ModelFile& file, const ModelConfig& config, int ranks,
                                    std::span<const int32_t> sizes, int stages) {
  if (stages == 1) return divide_layers(file, config, ranks, sizes);
  if (stages < 1 || ranks % stages != 0) {
    fail_usage("`pipeline` {} does not divide the {} ranks; each stage has as many", stages, ranks);
  }
  refuse_stages(file, config);
  const Divider divider(file, ranks, sizes);
  const int each = ranks / stages;
  std::vector<int64_t> stage_sizes;
  for (int s = 0; s < stages; ++s) stage_sizes.push_back(divider.size_of(s * each, each));
  const std::vector<Part> parts = divide_stages(file, config, stage_sizes);
  std::vector<ModelShare> shares;
  for (int s = 0; s < stages; ++s) {
    const auto own = sizes.empty()
                         ? sizes
                         : sizes.subspan(static_cast<size_t>(s) * static_cast<size_t>(each), static_cast<size_t>(each));
    for (ModelShare& share : divide_layers(file, config, each, own)) {
      share.stage = s;
      share.stages = stages;
      share.own_layers = parts[static_cast<size_t>(s)];
      shares.push_back(std::move(share));
    }
  }
  return shares;
}

ModelConfig config_of(const ModelConfig& whole, const ModelShare& share) {
  ModelConfig config = whole;
  if (!share.divides()) return config;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    const LayerShare& own = share.layers[i];
    layer.q_heads = own.q_heads.count;
    layer.kv_heads = own.kv_heads.count;
    (layer.experts.count > 0 ? layer.experts.ffn : layer.ffn) = own.ffn.count;
    layer.experts.shared_ffn = own.shared_ffn.count;
  }
  return config;
}

}  // namespace inferno
