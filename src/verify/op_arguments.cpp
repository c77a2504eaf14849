#include "verify/op_arguments.h"

#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "backend/op_fields.h"
#include "verify/op_shapes.h"

namespace inferno {
namespace {

struct Bytes {
  const std::byte* begin;
  const std::byte* end;
};
Bytes bytes_at(const void* data, int64_t size) {
  const auto* begin = static_cast<const std::byte*>(data);
  return {begin, begin + size};
}

// The memory of results, and that of indices, which no result may overlap: they are checked once, before anything runs.
class Ranges final : public FieldVisitor {
 public:
  void tensor(FieldTag tag, std::string_view /*name*/, Tensor& t) override {
    if (t.empty()) return;
    if (is_written(tag) || tag == FieldTag::private_out) {
      written_.push_back(bytes_at(t.data, t.bytes()));
    } else if (t.dtype == DType::i32) {
      fixed_.push_back(bytes_at(t.data, t.bytes()));
    }
  }
  void kv(FieldTag tag, std::string_view /*name*/, KvLayerView& view) override {
    if (!is_written(tag)) return;
    written_.push_back(bytes_at(view.k, view.pages * view.page_bytes()));
    written_.push_back(bytes_at(view.v, view.pages * view.values().page_bytes()));
  }
  void batch(std::string_view /*name*/, StepBatch& b) override {
    for (const auto& [array, count] : {std::pair<const int32_t*, int64_t>{b.pos, b.tokens},
                                       {b.seq_of_token, b.tokens},
                                       {b.slot, b.tokens},
                                       {b.q_begin, b.sequences + int64_t{1}},
                                       {b.kv_len, b.sequences},
                                       {b.block_table, int64_t{b.sequences} * b.max_pages},
                                       {b.state_slot, b.sequences}}) {
      if (array != nullptr) fixed_.push_back(bytes_at(array, count * 4));
    }
  }
  void check() const {
    for (const Bytes& w : written_) {
      for (const Bytes& f : fixed_) need(w.end <= f.begin || f.end <= w.begin, "a result in the memory of indices");
    }
  }

 private:
  std::vector<Bytes> written_;
  std::vector<Bytes> fixed_;
};

bool equal(const KvLayerView& a, const KvLayerView& b) {
  return a.k == b.k && a.v == b.v && a.pages == b.pages && a.page_size == b.page_size && a.kv_heads == b.kv_heads &&
         a.head_dim == b.head_dim && a.v_head_dim == b.v_head_dim && a.v_in_k == b.v_in_k && a.dtype == b.dtype;
}
bool equal(const StepBatch& a, const StepBatch& b) {
  return a.tokens == b.tokens && a.sequences == b.sequences && a.max_pages == b.max_pages && a.pos == b.pos &&
         a.seq_of_token == b.seq_of_token && a.q_begin == b.q_begin && a.kv_len == b.kv_len && a.slot == b.slot &&
         a.block_table == b.block_table && a.state_slot == b.state_slot;
}

// The ops of a file share one batch and one cache, and a private result is what the next op reads.
class Group final : public FieldVisitor {
 public:
  void tensor(FieldTag tag, std::string_view /*name*/, Tensor& t) override {
    if (tag == FieldTag::private_out) made_ = t;
    const bool reads = tag == FieldTag::in && !t.empty();
    if (reads && wanted_ && t.data == wanted_->data && t.shape == wanted_->shape && t.dtype == wanted_->dtype) {
      found_ = true;
    }
  }
  void kv(FieldTag /*tag*/, std::string_view /*name*/, KvLayerView& view) override {
    need(!view_ || equal(*view_, view), "ops of different caches");
    view_ = view;
  }
  void batch(std::string_view /*name*/, StepBatch& b) override {
    need(!batch_ || equal(*batch_, b), "ops of different batches");
    batch_ = b;
  }
  // After each op.
  void next() {
    need(!wanted_ || found_, "a private result that the next op does not read");
    wanted_ = std::exchange(made_, std::nullopt);
    found_ = false;
  }
  void check() const { need(!wanted_, "an incomplete group of ops"); }

 private:
  std::optional<KvLayerView> view_;
  std::optional<StepBatch> batch_;
  std::optional<Tensor> made_;    // the private result of this op
  std::optional<Tensor> wanted_;  // that of the op before
  bool found_ = false;
};

}  // namespace

void check_arguments(const OpImage& image) {
  Ranges ranges;
  Group group;
  for (const OpRecord& record : image.records()) {
    check_shapes(record);
    visit_fields(record, ranges);
    visit_fields(record, group);
    group.next();
  }
  ranges.check();
  group.check();
}

}  // namespace inferno
