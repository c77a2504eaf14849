#include "backend/backend.h"

#include <cstring>

#include "base/error.h"

namespace inferno {

std::string_view op_name(OpId op) {
  static constexpr std::string_view kNames[] = {
#define OP(name, Args) #name,
#include "backend/op_list.inc"
  };
  return kNames[static_cast<size_t>(op)];
}

std::optional<OpId> op_from_name(std::string_view name) {
  for (int i = 0; i < kOpCount; ++i) {
    if (op_name(static_cast<OpId>(i)) == name) return static_cast<OpId>(i);
  }
  return std::nullopt;
}

bool is_fused(OpId op) {
  switch (op) {
#define PRIMITIVE(name, Args)
#define FUSED(name, Args) case OpId::name:
#include "backend/op_list.inc"
    return true;
    default:
      return false;
  }
}

Buffer::~Buffer() {
  if (data_ != nullptr) owner_->deallocate(data_);
}

void Backend::copy_cache(int32_t /*layer*/, void* destination, const void* source, size_t bytes) {
  INFERNO_CHECK(host_visible());
  synchronize();
  std::memcpy(destination, source, bytes);
}

#define PRIMITIVE(op, Args)                                                                          \
  void Backend::op(const Args& /*args*/) {                                                           \
    fail("backend \"{}\" has no kernel for the primitive \"{}\"; run with `fused` on", name(), #op); \
  }
#define FUSED(op, Args)                    \
  void Backend::op(const Args& args) {     \
    fused_defaults::op(outermost(), args); \
  }
#include "backend/op_list.inc"

}  // namespace inferno
