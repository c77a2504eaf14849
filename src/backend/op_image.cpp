#include "backend/op_image.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>

#include "backend/op_fields.h"
#include "base/error.h"

namespace inferno {
namespace {

constexpr std::align_val_t kAlignment{64};

int32_t* writable(const int32_t* data) {
  return const_cast<int32_t*>(data);
}

// The int32 arrays of a batch: f(pointer member, number of entries).
template <typename F>
void for_each_array(StepBatch& b, F f) {
  f(b.token_ids, b.tokens);
  f(b.pos, b.tokens);
  f(b.seq_of_token, b.tokens);
  f(b.q_begin, b.sequences + 1);
  f(b.kv_len, b.sequences);
  f(b.slot, b.tokens);
  f(b.block_table, b.sequences * b.max_pages);
  f(b.logit_row_ids, b.logit_rows);
  f(b.state_slot, b.sequences);
}

}  // namespace

// ---- weights

HostWeight::HostWeight(std::string name, DType dtype, const Shape& shape, std::vector<std::byte> canonical,
                       int32_t layer)
    : Weight(std::move(name), dtype, shape, layer), canonical_(std::move(canonical)) {
  INFERNO_CHECK(static_cast<int64_t>(canonical_.size()) == rows() * row_bytes(dtype, cols()));
}

void HostWeight::read_row(int64_t row, std::span<std::byte> out) const {
  const auto bytes = static_cast<size_t>(row_bytes(dtype(), cols()));
  std::memcpy(out.data(), canonical_.data() + static_cast<size_t>(row) * bytes, bytes);
}

void WeightRows::read(uint64_t offset, std::span<std::byte> out) const {
  const std::lock_guard lock(mutex_);
  const auto row = static_cast<size_t>(row_bytes(dtype(), weight_.cols()));
  INFERNO_CHECK(offset % row == 0 && out.size() % row == 0);
  for (size_t i = 0; i < out.size() / row; ++i) {
    weight_.read_row(static_cast<int64_t>(offset / row + i), out.subspan(i * row, row));
  }
}

const Weight* WeightCopies::get(const Weight* original, OpId op) {
  WeightUse uses = WeightUse::matmul | WeightUse::gather;
  if (original->shape().rank == 1) uses = WeightUse::vector;
  if (op == OpId::embed) uses = WeightUse::gather;
  auto& copy = copies_[{original, uses}];
  if (!copy) copy = backend_.load_weight(WeightRows(*original), uses);
  return copy.get();
}

// ---- moving pointers

class OpImage::Relocate final : public FieldVisitor {
 public:
  Relocate(std::function<void*(const void*)> address, std::function<const Weight*(const Weight*)> weight)
      : address_(std::move(address)), weight_(std::move(weight)) {}

  void tensor(FieldTag /*tag*/, std::string_view /*name*/, Tensor& t) override {
    if (t.data != nullptr) t.data = address_(t.data);
  }
  void weight(std::string_view /*name*/, const Weight*& w) override {
    if (w != nullptr) w = weight_(w);
  }
  void kv(FieldTag /*tag*/, std::string_view /*name*/, KvLayerView& view) override {
    view.k = address_(view.k);
    view.v = address_(view.v);
  }
  void batch(std::string_view /*name*/, StepBatch& b) override {
    for_each_array(b, [&](const int32_t*& array, int32_t) {
      if (array != nullptr) array = static_cast<const int32_t*>(address_(array));
    });
  }

 private:
  std::function<void*(const void*)> address_;
  std::function<const Weight*(const Weight*)> weight_;
};

// ---- images

void OpImage::Free::operator()(std::byte* data) const noexcept {
  ::operator delete(data, kAlignment);
}

size_t OpImage::add_block(size_t bytes) {
  const size_t size = std::max<size_t>(bytes, 1);
  Block block;
  block.data.reset(static_cast<std::byte*>(::operator new(size, kAlignment)));
  block.bytes = size;
  std::memset(block.data.get(), 0, size);
  blocks_.push_back(std::move(block));
  return blocks_.size() - 1;
}

Tensor OpImage::tensor(const Shape& shape, DType dtype) {
  Tensor t{nullptr, shape, dtype};
  t.data = blocks_[add_block(static_cast<size_t>(t.bytes()))].data.get();
  return t;
}

const Weight* OpImage::weight(std::string name, DType dtype, const Shape& shape, std::vector<std::byte> canonical,
                              int32_t layer) {
  weights_.push_back(std::make_unique<HostWeight>(std::move(name), dtype, shape, std::move(canonical), layer));
  return weights_.back().get();
}

std::pair<size_t, size_t> OpImage::locate(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(blocks_[i].data.get());
    if (at >= begin && at < begin + blocks_[i].bytes) return {i, at - begin};
  }
  check_failed(__FILE__, __LINE__, "address inside the image");
}

void OpImage::mark_written() {
  class Mark final : public FieldVisitor {
   public:
    explicit Mark(OpImage& image) : image_(image) {}
    void tensor(FieldTag tag, std::string_view /*name*/, Tensor& t) override {
      if (is_written(tag) && t.data != nullptr) mark(t.data);
    }
    void kv(FieldTag tag, std::string_view /*name*/, KvLayerView& view) override {
      if (!is_written(tag)) return;
      mark(view.k);
      mark(view.v);
    }

   private:
    void mark(const void* address) { image_.blocks_[image_.locate(address).first].written = true; }
    OpImage& image_;
  };
  Mark mark(*this);
  for (const OpRecord& record : records_) visit_fields(record, mark);
}

OpImage OpImage::clone() const {
  OpImage copy;
  for (const Block& block : blocks_) {
    copy.add_block(block.bytes);
    copy.blocks_.back().written = block.written;
    std::memcpy(copy.blocks_.back().data.get(), block.data.get(), block.bytes);
  }
  copy.pieces_ = pieces_;
  copy.records_ = records_;
  Relocate relocate(
      [&](const void* address) -> void* {
        const auto [block, offset] = locate(address);
        return copy.blocks_[block].data.get() + offset;
      },
      [](const Weight* w) { return w; });
  for (OpRecord& record : copy.records_) visit_fields(record, relocate);
  return copy;
}

void OpImage::own_weights() {
  Relocate relocate([](const void* address) { return const_cast<void*>(address); },
                    [&](const Weight* w) -> const Weight* {
                      const auto bytes = static_cast<size_t>(row_bytes(w->dtype(), w->cols()));
                      std::vector<std::byte> canonical(static_cast<size_t>(w->rows()) * bytes);
                      WeightRows(*w).read(0, canonical);
                      return weight(w->name(), w->dtype(), w->shape(), std::move(canonical), w->layer());
                    });
  for (OpRecord& record : records_) visit_fields(record, relocate);
}

// ---- capture: all fields are looked at first; then tensors are placed, merged where they overlap, and the pages of
// the cache that the batch names; then pointers are moved

class OpImage::Capture final : public FieldVisitor {
 public:
  Capture(OpImage& image, Backend& backend) : image_(image), backend_(backend) {}

  void batch(std::string_view /*name*/, StepBatch& b) override {
    if (placing_) {
      b = batch_;
      return;
    }
    if (origin_.pos != nullptr) {
      INFERNO_CHECK(b.pos == origin_.pos && b.tokens == origin_.tokens);
      return;
    }
    batch_ = origin_ = b;
    for_each_array(batch_, [&](const int32_t*& array, int32_t count) {
      if (array == nullptr) return;
      const auto bytes = static_cast<size_t>(count) * sizeof(int32_t);
      const size_t block = image_.add_block(bytes);
      if (count > 0) backend_.download(image_.blocks_[block].data.get(), array, bytes);
      array = reinterpret_cast<const int32_t*>(image_.blocks_[block].data.get());
    });
    for (int32_t t = 0; t < batch_.tokens; ++t) last_position_ = std::max(last_position_, batch_.pos[t]);
  }

  void tensor(FieldTag tag, std::string_view name, Tensor& t) override {
    if (t.data == nullptr) return;
    auto* const begin = t.as<std::byte>();
    if (placing_) {
      const auto found =
          std::prev(std::upper_bound(ranges_.begin(), ranges_.end(), begin,
                                     [](const std::byte* a, const Range& range) { return a < range.begin; }));
      if (name == "rope") t.shape.dims[0] = rope_rows(t);
      t.data = image_.blocks_[found->block].data.get() + (begin - found->begin);
      return;
    }
    if (name == "positions") {
      std::vector<int32_t> positions(static_cast<size_t>(t.elements()));
      backend_.download(positions.data(), t.data, positions.size() * sizeof(int32_t));
      for (const int32_t p : positions) last_position_ = std::max(last_position_, p);
    }
    if (name == "rope") {
      ropes_.push_back(t);  // cut when all positions are known
      return;
    }
    ranges_.push_back({begin, begin + t.bytes(), is_written(tag), 0});
  }

  void attribute(std::string_view name, double& value) override {
    if (name == "position") last_position_ = std::max(last_position_, static_cast<int32_t>(value));
  }

  void kv(FieldTag tag, std::string_view /*name*/, KvLayerView& view) override {
    const auto found = caches_.try_emplace(view.k, Cache{view, false}).first;
    if (placing_) {
      view = found->second.view;
    } else {
      found->second.written |= is_written(tag);
    }
  }

  // Between the two visits of all fields.
  void place() {
    place_tensors();
    place_caches();
    placing_ = true;
  }

 private:
  struct Range {
    std::byte* begin;
    std::byte* end;
    bool written;
    size_t block;
  };
  struct Cache {
    KvLayerView view;
    bool written;
  };

  void place_tensors() {
    for (Tensor& rope : ropes_) {
      rope.shape.dims[0] = rope_rows(rope);
      ranges_.push_back({rope.as<std::byte>(), rope.as<std::byte>() + rope.bytes(), false, 0});
    }
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    std::vector<Range> merged;
    for (const Range& range : ranges_) {
      if (!merged.empty() && range.begin < merged.back().end) {
        merged.back().end = std::max(merged.back().end, range.end);
        merged.back().written |= range.written;
      } else {
        merged.push_back(range);
      }
    }
    ranges_ = std::move(merged);
    for (Range& range : ranges_) {
      const auto bytes = static_cast<size_t>(range.end - range.begin);
      range.block = image_.add_block(bytes);
      image_.pieces_.push_back({range.block, 0, bytes, range.begin, range.written});
    }
  }

  void place_caches() {
    if (caches_.empty()) return;
    const int32_t page_size = caches_.begin()->second.view.page_size;
    struct Page {
      int32_t number = 0;     // in the image
      bool has_slot = false;  // of this step
    };
    std::map<int32_t, Page> pages;  // by number in the cache
    for (int32_t s = 0; s < batch_.sequences; ++s) {
      for (int32_t p = 0; p < pages_of(batch_.kv_len[s], page_size); ++p) {
        pages[batch_.block_table[int64_t{s} * batch_.max_pages + p]] = {};
      }
    }
    for (int32_t t = 0; t < batch_.tokens; ++t) {
      if (batch_.slot[t] >= 0) pages[batch_.slot[t] / page_size].has_slot = true;
    }
    int32_t count = 0;
    for (auto& [old_number, page] : pages) page.number = count++;
    for (auto& [memory, cache] : caches_) {
      INFERNO_CHECK(cache.view.page_size == page_size);
      const int64_t value_page_bytes = cache.view.values().page_bytes();
      for (void** rows : {&cache.view.k, &cache.view.v}) {
        const auto page_bytes = static_cast<size_t>(rows == &cache.view.k ? cache.view.page_bytes() : value_page_bytes);
        const size_t block = image_.add_block(pages.size() * page_bytes);
        for (const auto& [old_number, page] : pages) {
          image_.pieces_.push_back({block, static_cast<size_t>(page.number) * page_bytes, page_bytes,
                                    static_cast<std::byte*>(*rows) + static_cast<size_t>(old_number) * page_bytes,
                                    cache.written && page.has_slot});
        }
        *rows = image_.blocks_[block].data.get();
      }
      cache.view.pages = count;
    }
    for (int32_t s = 0; s < batch_.sequences; ++s) {
      for (int32_t p = 0; p < batch_.max_pages; ++p) {
        int32_t& entry = writable(batch_.block_table)[int64_t{s} * batch_.max_pages + p];
        entry = p < pages_of(batch_.kv_len[s], page_size) ? pages[entry].number : 0;
      }
    }
    for (int32_t t = 0; t < batch_.tokens; ++t) {
      int32_t& slot = writable(batch_.slot)[t];
      if (slot >= 0) slot = pages[slot / page_size].number * page_size + slot % page_size;
    }
  }

  [[nodiscard]] int64_t rope_rows(const Tensor& table) const {
    return std::min<int64_t>(table.shape[0], int64_t{last_position_} + 1);
  }

  OpImage& image_;
  Backend& backend_;
  bool placing_ = false;
  StepBatch origin_;  // the batch in the backend's memory
  StepBatch batch_;   // in the image
  std::vector<Tensor> ropes_;
  int32_t last_position_ = 0;
  std::vector<Range> ranges_;
  std::map<const void*, Cache> caches_;  // by the address of their keys
};

OpImage OpImage::capture(Backend& backend, std::span<const OpRecord> records) {
  OpImage image;
  image.records_.assign(records.begin(), records.end());
  Capture capture(image, backend);
  for (const OpRecord& record : records) visit_fields(record, capture);
  capture.place();
  for (OpRecord& record : image.records_) visit_fields(record, capture);
  for (const Piece& piece : image.pieces_) {
    if (piece.bytes > 0) {
      backend.download(image.blocks_[piece.block].data.get() + piece.offset, piece.origin, piece.bytes);
    }
  }
  image.mark_written();
  return image;
}

void OpImage::read_written(Backend& backend) {
  for (const Piece& piece : pieces_) {
    if (!piece.written || piece.bytes == 0) continue;
    backend.download(blocks_[piece.block].data.get() + piece.offset, piece.origin, piece.bytes);
  }
}

void OpImage::replace_written(Backend& backend) const {
  for (const Piece& piece : pieces_) {
    if (!piece.written || piece.bytes == 0) continue;
    backend.upload(piece.origin, blocks_[piece.block].data.get() + piece.offset, piece.bytes);
  }
}

// ---- placed ops

PlacedOp::PlacedOp(const OpImage& image, Backend& backend, WeightCopies& weights)
    : image_(image), backend_(backend), records_(image.records()) {
  for (const OpImage::Block& block : image_.blocks_) buffers_.push_back(backend_.allocate(block.bytes));
  for (OpRecord& record : records_) {
    OpImage::Relocate relocate(
        [&](const void* address) -> void* {
          const auto [block, offset] = image_.locate(address);
          return static_cast<std::byte*>(buffers_[block].data()) + offset;
        },
        [&](const Weight* w) { return weights.get(w, record.op()); });
    visit_fields(record, relocate);
  }
  reset();
  backend_.begin_step(StepMode::plan);
  for (const OpRecord& record : records_) call_op(backend_, record);
  backend_.end_step();
}

void PlacedOp::reset() {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    backend_.upload(buffers_[i].data(), image_.blocks_[i].data.get(), image_.blocks_[i].bytes);
  }
}

void PlacedOp::run() {
  backend_.begin_step(StepMode::run);
  for (const OpRecord& record : records_) call_op(backend_, record);
  backend_.end_step();
  backend_.synchronize();
}

void PlacedOp::download(OpImage& into) const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (!image_.blocks_[i].written) continue;
    backend_.download(into.blocks_[i].data.get(), buffers_[i].data(), image_.blocks_[i].bytes);
  }
}

OpImage run_on(Backend& backend, const OpImage& image) {
  WeightCopies weights(backend);
  PlacedOp placed(image, backend, weights);
  placed.run();
  OpImage result = image.clone();
  placed.download(result);
  return result;
}

}  // namespace inferno
