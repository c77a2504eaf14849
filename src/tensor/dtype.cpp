#include "tensor/dtype.h"

#include <cctype>
#include <string>

namespace inferno {
namespace {

constexpr bool table_is_in_enum_order() {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<size_t>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(table_is_in_enum_order());

}  // namespace

std::optional<DType> dtype_from_gguf(int64_t gguf_id) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.gguf_id == gguf_id) return info.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  std::string upper;
  for (const char c : name) upper.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == upper) return info.dtype;
  }
  return std::nullopt;
}

std::string_view weight_dtype_names() {
  static const std::string names = [] {
    std::string list;
    for (const DTypeInfo& info : kDTypes) {
      if (info.dtype == DType::i32) continue;
      if (!list.empty()) list += ", ";
      list += info.name;
    }
    return list;
  }();
  return names;
}

}  // namespace inferno
