#include "backend/fallback.h"

#include <fmt/core.h>

#include <cstring>

#include "backend/op_fields.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace inferno {
namespace {

// The last entry that starts at or before the address, if the address is inside.
template <typename Map, typename Bytes>
auto holder(Map& map, const void* address, Bytes bytes_of) {
  auto* at = static_cast<std::byte*>(const_cast<void*>(address));
  auto found = map.upper_bound(at);
  if (found == map.begin()) return map.end();
  --found;
  return at < found->first + bytes_of(found->second) ? found : map.end();
}

}  // namespace

// ---- what stays where

void FallbackBackend::expect(const ModelNeeds& needs) {
  BackendDecorator::expect(needs);
  const std::optional<uint64_t> free = free_memory();
  if (!free) return;
  // Layouts on the device may be a little larger than in the file.
  const auto on_device = [](uint64_t bytes) { return bytes + bytes / 32; };
  uint64_t used = on_device(needs.other_bytes);
  size_t fit = 0;
  while (fit < needs.layer_bytes.size() && used + on_device(needs.layer_bytes[fit]) <= *free) {
    used += on_device(needs.layer_bytes[fit++]);
  }
  if (fit == needs.layer_bytes.size()) return;
  other_ = make_other_();
  INFERNO_CHECK(other_->cpu_numerics());
  first_ = static_cast<int32_t>(fit);
  log(LogLevel::warn, "{} of {} layers do not fit the {} of free memory on \"{}\" and run on \"{}\"",
      needs.layer_bytes.size() - fit, needs.layer_bytes.size(), format_bytes(*free), name(), other_->name());
}

std::optional<FallbackLayers> FallbackBackend::fallback() const {
  if (other_ == nullptr) return std::nullopt;
  return FallbackLayers{.first = first_, .backend = std::string(other_->name())};
}

std::string FallbackBackend::description() const {
  std::string text = BackendDecorator::description();
  if (other_ != nullptr) text += fmt::format("; layers from {} on: {}", first_, other_->description());
  return text;
}

bool FallbackBackend::supports(OpId op, DType dtype) const {
  return BackendDecorator::supports(op, dtype) && (other_ == nullptr || other_->supports(op, dtype));
}

bool FallbackBackend::is_wide(const OpRecord& record) const {
  return keeps(layer_of(record).value_or(-1)) ? inner().is_wide(record) : other_->is_wide(record);
}

std::unique_ptr<Weight> FallbackBackend::load_weight(const WeightSource& source, WeightUse uses) {
  return keeps(source.layer()) ? inner().load_weight(source, uses) : other_->load_weight(source, uses);
}

Buffer FallbackBackend::allocate_cache(int32_t layer, size_t bytes) {
  if (keeps(layer)) return inner().allocate_cache(layer, bytes);
  Buffer made = other_->allocate(bytes);
  other_caches_[static_cast<std::byte*>(made.data())] = bytes;
  return made;
}

void FallbackBackend::copy_cache(int32_t layer, void* destination, const void* source, size_t bytes) {
  if (other_ != nullptr && other_has_ops_) synchronize();
  (keeps(layer) ? inner() : *other_).copy_cache(layer, destination, source, bytes);
}

Buffer FallbackBackend::allocate(size_t bytes) {
  Buffer made = inner().allocate(bytes);
  if (other_ != nullptr && !inner().host_visible()) {
    mirrors_[static_cast<std::byte*>(made.data())] = {.bytes = bytes, .host = std::make_unique<std::byte[]>(bytes)};
  }
  return made;
}

// ---- memory on two sides

FallbackBackend::Mirror* FallbackBackend::find(const void* address, std::byte** in_mirror) {
  const auto found = holder(mirrors_, address, [](const Mirror& m) { return m.bytes; });
  if (found == mirrors_.end()) return nullptr;
  *in_mirror = found->second.host.get() + (static_cast<const std::byte*>(address) - found->first);
  return &found->second;
}

bool FallbackBackend::in_other_cache(const void* address) const {
  return holder(other_caches_, address, [](size_t bytes) { return bytes; }) != other_caches_.end();
}

void FallbackBackend::upload(void* destination, const void* host, size_t bytes) {
  std::byte* to = nullptr;
  if (other_ != nullptr) {
    if (other_has_ops_) synchronize();
    if (in_other_cache(destination)) return other_->upload(destination, host, bytes);
    if (find(destination, &to) != nullptr) std::memcpy(to, host, bytes);
  }
  inner().upload(destination, host, bytes);
}

void FallbackBackend::download(void* host, const void* source, size_t bytes) {
  std::byte* from = nullptr;
  if (other_ != nullptr) {
    if (other_has_ops_) synchronize();
    if (in_other_cache(source)) return other_->download(host, source, bytes);
    if (const Mirror* mirror = find(source, &from); mirror != nullptr && mirror->newer == Newer::host) {
      std::memcpy(host, from, bytes);
      return;
    }
  }
  inner().download(host, source, bytes);
}

// ---- steps

void FallbackBackend::begin_step(StepMode mode) {
  planning_ = mode == StepMode::plan;
  layer_ = kNoLayer;
  inner().begin_step(mode);
  if (other_ != nullptr) other_->begin_step(mode);
}

void FallbackBackend::end_step() {
  if (other_ != nullptr) other_->end_step();
  other_has_ops_ = false;
  inner().end_step();
  planning_ = false;
}

void FallbackBackend::synchronize() {
  wait_for_other();
  inner().synchronize();
  device_has_ops_ = false;
}

void FallbackBackend::wait_for_other() {
  if (other_has_ops_) other_->synchronize();
  other_has_ops_ = false;
}

// Leads an op's tensors and batch to their mirrors, with what it reads brought over.
class FallbackBackend::ToHost final : public FieldVisitor {
 public:
  explicit ToHost(FallbackBackend& backend) : b_(backend) {}

  void tensor(FieldTag tag, std::string_view /*name*/, Tensor& value) override {
    std::byte* at = nullptr;
    Mirror* mirror = value.data == nullptr ? nullptr : b_.find(value.data, &at);
    if (mirror == nullptr) return;
    if (!b_.planning_) {
      if (!is_write_only(tag) && mirror->newer == Newer::device) {
        b_.inner().download(at, value.data, static_cast<size_t>(value.bytes()));
        mirror->newer = Newer::both;
      }
      if (tag != FieldTag::in) mirror->newer = Newer::host;
    }
    value.data = at;
  }
  // Uploads fill the mirror too, so a batch is always there.
  void batch(std::string_view /*name*/, StepBatch& value) override {
    const auto move = [&](const int32_t*& field) {
      std::byte* at = nullptr;
      if (field != nullptr && b_.find(field, &at) != nullptr) field = reinterpret_cast<const int32_t*>(at);
    };
    move(value.token_ids);
    move(value.pos);
    move(value.seq_of_token);
    move(value.q_begin);
    move(value.kv_len);
    move(value.slot);
    move(value.block_table);
    move(value.logit_row_ids);
    move(value.state_slot);
  }

 private:
  FallbackBackend& b_;
};

// Brings what a device op reads back to the device.
class FallbackBackend::ToDevice final : public FieldVisitor {
 public:
  explicit ToDevice(FallbackBackend& backend) : b_(backend) {}

  void tensor(FieldTag tag, std::string_view /*name*/, Tensor& value) override {
    std::byte* at = nullptr;
    Mirror* mirror = value.data == nullptr ? nullptr : b_.find(value.data, &at);
    if (mirror == nullptr || b_.planning_) return;
    if (!is_write_only(tag) && mirror->newer == Newer::host) {
      b_.wait_for_other();
      b_.inner().upload(value.data, at, static_cast<size_t>(value.bytes()));
      mirror->newer = Newer::both;
    }
    if (tag != FieldTag::in) mirror->newer = Newer::device;
  }

 private:
  FallbackBackend& b_;
};

template <typename Args>
void FallbackBackend::place(const Args& args) {
  if (other_ == nullptr) {
    OpOf<Args>::call(inner(), args);
    return;
  }
  OpRecord record;
  record.assign(args);
  layer_ = layer_of(record).value_or(layer_);
  if (keeps(layer_)) {
    if (inner().host_visible() && other_has_ops_ && !planning_) wait_for_other();
    ToDevice move(*this);
    visit_fields(std::as_const(record), move);
    OpOf<Args>::call(inner(), args);
    device_has_ops_ = true;
    return;
  }
  if (inner().host_visible() && device_has_ops_ && !planning_) {
    inner().synchronize();
    device_has_ops_ = false;
  }
  ToHost move(*this);
  visit_fields(record, move);
  other_has_ops_ = true;
  call_op(*other_, record);
}

#define OP(name, Args)                           \
  void FallbackBackend::name(const Args& args) { \
    place(args);                                 \
  }
#include "backend/op_list.inc"

}  // namespace inferno
