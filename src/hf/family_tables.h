// The tables of families that are in files of their own, and settings that several of them share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hf/families.h"

namespace inferno::hf {

[[nodiscard]] std::span<const Family> recurrent_families();  // LFM2, Granite 4, Nemotron
[[nodiscard]] std::span<const Family> sigmoid_families();    // GLM and DeepSeek: experts chosen by sigmoids
[[nodiscard]] std::span<const Family> encoder_families();    // BERT

// Scales of Granite, and what Llama has.
void set_granite(const Config& config, MetadataList& metadata);
// A size for each layer: `size` where the layer has what is counted, else 0.
void set_by_layer(std::string_view key, const std::vector<bool>& has, uint32_t size, MetadataList& metadata);
// Keys of routers that choose by sigmoids.
void set_sigmoid_experts(const Config& config, MetadataList& metadata);

}  // namespace inferno::hf
