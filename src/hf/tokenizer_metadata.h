// The keys of a vocabulary and what goes with it: chat template, tokens that end a text, suggested sampling.
#pragma once

#include <cstdint>
#include <string>

#include "hf/config.h"
#include "hf/metadata_list.h"

namespace inferno::hf {

// `rows`: of the embedding, which has one for each token; names without a token fill up. A folder without a
// tokenizer.json gives no vocabulary.
void set_tokenizer_metadata(const std::string& folder, const Config& config, uint64_t rows, MetadataList& metadata);

// general.sampling.* of generation_config.json, where there is one and it asks for samples.
void set_sampling_metadata(const std::string& folder, MetadataList& metadata);

// How a text's rows become its vector, as sentence-transformers keeps it beside the model (1_Pooling/config.json).
void set_pooling_metadata(const std::string& folder, MetadataList& metadata);

}  // namespace inferno::hf
