// What the tensors of a model are called in its file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace inferno {

// More than any model has.
inline constexpr int32_t kMaxLayers = 4096;

inline constexpr std::string_view kLayerInputTable = "per_layer_token_embd.weight";
inline constexpr std::string_view kLayerInputProjection = "per_layer_model_proj.weight";
inline constexpr std::string_view kLayerInputNorm = "per_layer_proj_norm.weight";
inline constexpr std::string_view kEmbeddingTensor = "token_embd.weight";
inline constexpr std::string_view kOutputNormTensor = "output_norm.weight";
inline constexpr std::string_view kHeadTensor = "output.weight";  // missing when the embedding is the head too
inline constexpr std::string_view kRopeFactorsTensor = "rope_freqs.weight";
inline constexpr std::string_view kLongRopeFactorsTensor = "rope_factors_long.weight";
inline constexpr std::string_view kShortRopeFactorsTensor = "rope_factors_short.weight";

// (3, "attn_q.weight") -> "blk.3.attn_q.weight"
[[nodiscard]] std::string layer_tensor_name(int32_t layer, std::string_view part);
// 3 of "blk.3.attn_q.weight"; nothing of names outside the layers, or of a layer that no model has.
[[nodiscard]] std::optional<int32_t> layer_of_tensor(std::string_view name);

}  // namespace inferno
