// The fields of any op's args, without knowing their type: what moves, prints, compares or stores whole ops is written
// against this one visitor and never against a single op.
#pragma once

#include <optional>
#include <string_view>

#include "backend/plan.h"

namespace inferno {

// Called once per field, in the order the args list them. Fields may be changed. Arguments left out (a Tensor with no
// data, a null Weight) are visited too.
class FieldVisitor {
 public:
  FieldVisitor() = default;
  virtual ~FieldVisitor() = default;
  FieldVisitor(const FieldVisitor&) = delete;
  FieldVisitor& operator=(const FieldVisitor&) = delete;

  virtual void tensor(FieldTag /*tag*/, std::string_view /*name*/, Tensor& /*value*/) {}
  virtual void weight(std::string_view /*name*/, const Weight*& /*value*/) {}
  virtual void kv(FieldTag /*tag*/, std::string_view /*name*/, KvLayerView& /*value*/) {}
  virtual void batch(std::string_view /*name*/, StepBatch& /*value*/) {}
  // Numbers, flags and enumerations; a double holds each of them exactly.
  virtual void attribute(std::string_view /*name*/, double& /*value*/) {}
};

void visit_fields(OpRecord& record, FieldVisitor& visitor);
// Changes are thrown away.
void visit_fields(const OpRecord& record, FieldVisitor& visitor);

// The op of that name; an unknown one is a usage Error that lists the known ops and suggests the nearest.
[[nodiscard]] OpId require_op(std::string_view name);
[[noreturn]] void fail_unknown_op(std::string_view name);

// A record of the op with default args; its fields are then set by a visitor.
[[nodiscard]] OpRecord empty_record(OpId op);
// Calls the op on the backend.
void call_op(Backend& backend, const OpRecord& record);

// Whether the field holds a result that others may read.
[[nodiscard]] constexpr bool is_written(FieldTag tag) {
  return tag == FieldTag::out || tag == FieldTag::inout || tag == FieldTag::kv_out || tag == FieldTag::state;
}
// Whether the op never reads the field.
[[nodiscard]] constexpr bool is_write_only(FieldTag tag) {
  return tag == FieldTag::out || tag == FieldTag::private_out;
}
// The layer of the first weight among the args (kNoLayer: of none); nothing when the op has no weights and thus belongs
// where the op before it did.
[[nodiscard]] std::optional<int> layer_of(const OpRecord& record);

// Pages that hold a sequence's positions: the entries of its block table that mean anything.
[[nodiscard]] int32_t pages_of(int32_t kv_len, int32_t page_size);

}  // namespace inferno
