// For tests: GGUF files built byte by byte (not by the writer under test), with the place of every field known, and
// from them malformed files and mutations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace inferno {

enum class FieldKind {
  magic,
  version,
  tensor_count,
  metadata_count,
  key_length,
  value_type,
  number,  // a scalar value
  boolean,
  string_length,
  array_type,
  array_count,
  name_length,
  rank,
  dimension,
  tensor_type,
  offset,
  text,  // bytes of a string
};

struct FileField {
  FieldKind kind;
  std::string label;  // "dimension 0 of t.q8"
  size_t begin;
  size_t size;
};

struct BuiltFile {
  std::string bytes;
  std::vector<FileField> fields;
  size_t data_begin = 0;

  [[nodiscard]] std::span<const std::byte> span() const { return std::as_bytes(std::span(bytes)); }
};

// A valid file of about 2 KiB: every metadata type, arrays of every type, nested arrays, and five tensors with one to
// four dimensions, plain, quantized, and of a type inferno cannot compute with.
[[nodiscard]] BuiltFile build_sample_file(uint32_t version = 3);

struct MalformedFile {
  std::string name;  // what is wrong with it
  std::string bytes;
};

// Well over 200 files that must be refused: every field of the sample at its bad values, products and sums that wrap,
// every cut, and breaches of each rule.
[[nodiscard]] std::vector<MalformedFile> build_malformed_files();

// A changed copy of `base`: one to four changes, each of a field, a run of bytes, or the file's length.
[[nodiscard]] std::string mutate(const BuiltFile& base, std::mt19937_64& random);

// Files that reach the reader's limits in one way each and are valid otherwise, at their bound.
[[nodiscard]] std::string build_file_with_many_keys(size_t count);
[[nodiscard]] std::string build_file_with_many_tensors(size_t count);
[[nodiscard]] std::string build_file_with_nested_arrays(size_t count, size_t depth);

}  // namespace inferno
