// Vectors of texts: what Llm::embed() takes and gives.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace inferno {

struct EmbedOptions {
  std::string pooling = {};  // how a text's tokens become one vector: "mean", "cls", "last"; empty: the model's own
  bool normalize = true;     // to unit length
  int32_t dimensions = 0;    // only the first ones, before normalizing, for models made for that; 0: all
  bool truncate = false;     // texts that are too long are cut; else they are an Error
};

struct Embeddings {
  int64_t rows = 0;           // one per text, in order
  int32_t width = 0;          // elements of a row
  std::vector<float> values;  // [rows, width]
  int64_t tokens = 0;         // of all texts
  std::string pooling;        // that was used

  [[nodiscard]] std::span<const float> row(int64_t index) const {
    return std::span(values).subspan(static_cast<size_t>(index * width), static_cast<size_t>(width));
  }
};

}  // namespace inferno
