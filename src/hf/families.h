// What inferno knows of the families whose folders it reads: names of tensors, what is done to them, settings.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "hf/config.h"
#include "hf/metadata_list.h"

namespace inferno::hf {

// What is done to a stored tensor.
enum class Change {
  none,
  plus_one,   // norms that are stored less 1
  minus_exp,  // decays stored as logarithms
  rope_q,     // rows of heads: halves to pairs, for families whose files have the rotated dimensions in pairs
  rope_k,
  v_heads,            // heads of v, grouped by their key head in the folder, in turns in the file
  minus_exp_v_heads,  // both
  v_heads_after_qk,   // the same behind the rows of q and k
  v_columns,          // the same for columns
  grouped_qkv,        // q, k and v out of groups [q | k | v | z], one for each key head
  grouped_z,          // and z
  first_half,         // of the rows, or of the rows of each expert
  second_half,
  transposed,       // matrices of experts
  transposed_even,  // and of its rows those with even numbers
  transposed_odd,
  even_columns,
  odd_columns,
  mxfp4,       // blocks of experts, with the scales beside them
  mxfp4_even,  // and of the rows those with even numbers
  mxfp4_odd,
  column,            // a vector as a matrix of one column
  minus_exp_column,  // and of decays
  groups,            // a vector as a matrix, a row for each group of a Mamba-2 layer
  latent_keys,       // of latent attention: each head's rows of keys, transposed
  latent_values,     // and those of values
};

// `stored` is the name behind "model." and, where `gguf` has a layer, behind "layers.N."; `*` is the number of an
// expert, all of which become one tensor. Several rules may have the same stored name: each makes a tensor.
struct NameRule {
  std::string_view stored;
  std::string_view gguf;
  Change change = Change::none;
};

struct Family {
  std::string_view model_type;    // of config.json
  std::string_view architecture;  // of inferno
  // Of several families of one type the first that applies; null: it does.
  bool (*applies)(const Config& config) = nullptr;
  std::span<const NameRule> rules;             // of the family alone, before those of all
  std::span<const NameRule> model_rules = {};  // the same of tensors outside of layers
  bool plus_one = false;                       // norms named by the rules of all are stored less 1
  bool rope_pairs = false;                     // rope_q and rope_k
  void (*set_metadata)(const Config& config, MetadataList& metadata);
};

// An Error that lists the known ones when there is none of this type.
[[nodiscard]] const Family& find_family(const Config& config);
// Of tensors in layers, and of those outside, of all families.
[[nodiscard]] std::span<const NameRule> common_layer_rules();
[[nodiscard]] std::span<const NameRule> common_model_rules();

// Keys that all families have, then the family's own.
void set_model_metadata(const Config& config, const Family& family, MetadataList& metadata);

// Factors of the rotation's frequencies, (rotated dimensions / 2) each, which files hold as tensors.
struct RopeTensors {
  std::vector<float> factors;       // "rope_freqs.weight"
  std::vector<float> long_factors;  // "rope_factors_long.weight"
  std::vector<float> short_factors;
};
[[nodiscard]] RopeTensors make_rope_tensors(const Config& config, const Family& family);

}  // namespace inferno::hf
