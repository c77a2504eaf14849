// What a rule of a family makes of one stored tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hf/config.h"
#include "hf/families.h"
#include "hf/recipe.h"
#include "hf/safetensors.h"

namespace inferno::hf {

class PieceMaker {
 public:
  // All of them outlive the object.
  PieceMaker(const Config& config, const Family& family, const Safetensors& stored);

  // A tensor of this name out of the stored one; an Error when its shape or type does not fit.
  [[nodiscard]] HfTensor make(const StoredTensor& source, Change change, const std::string& name,
                              const ScaleBlock& block) const;

 private:
  [[noreturn]] void reject(const StoredTensor& source, std::string_view problem) const;
  // `count` things one after another, `step` elements apart, in the order that the change wants.
  [[nodiscard]] Axes order(const StoredTensor& source, Change change, int64_t count, int64_t step) const;
  [[nodiscard]] Axes rope_order(const StoredTensor& source, int64_t heads, int64_t count, int64_t step) const;
  [[nodiscard]] Axes value_head_order(const StoredTensor& source, int64_t count, int64_t step) const;
  void make_vector(const StoredTensor& source, Change change, HfTensor& tensor) const;
  void make_matrix(const StoredTensor& source, Change change, HfTensor& tensor) const;
  void make_grouped(const StoredTensor& source, Change change, HfTensor& tensor) const;
  void make_latent(const StoredTensor& source, Change change, HfTensor& tensor) const;
  void make_experts(const StoredTensor& source, Change change, HfTensor& tensor) const;
  void make_mxfp4(const StoredTensor& source, Change change, HfTensor& tensor) const;
  void add_scale(const StoredTensor& source, const ScaleBlock& block, HfTensor& tensor) const;
  [[nodiscard]] DType type_of(const StoredTensor& source, const HfTensor& tensor) const;

  const Config& config_;
  const Family& family_;
  const Safetensors& stored_;
  // Heads of the linear layers; 0 in a family without.
  int64_t key_heads_ = 0;
  int64_t value_heads_ = 0;
  int64_t key_dim_ = 0;
  int64_t value_dim_ = 0;
  int64_t groups_ = 0;  // of Mamba-2 layers
};

}  // namespace inferno::hf
