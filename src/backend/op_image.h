// An op, or the ops of a group, with everything they point to, in host memory: how ops travel.
//
// An image is made by hand (test cases), captured from a backend (verify, shadow checks, placement on a device with
// memory of its own) or read from a file (replay); PlacedOp puts it on any backend and runs it there. Memory that
// arguments share (a residual that is the output, a result that the next op reads) stays shared. Of the cache only
// pages in use are kept, renumbered; of a rope table only the rows up to the last position.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/plan.h"

namespace inferno {

// A weight as it is stored in a file.
class HostWeight final : public Weight {
 public:
  HostWeight(std::string name, DType dtype, const Shape& shape, std::vector<std::byte> canonical,
             int32_t layer = kNoLayer);
  [[nodiscard]] uint64_t bytes() const override { return canonical_.size(); }
  void read_row(int64_t row, std::span<std::byte> out) const override;

 private:
  std::vector<std::byte> canonical_;
};

// Any weight as a source for another backend's load_weight.
class WeightRows final : public WeightSource {
 public:
  explicit WeightRows(const Weight& weight) : weight_(weight) {}
  [[nodiscard]] const std::string& name() const override { return weight_.name(); }
  [[nodiscard]] DType dtype() const override { return weight_.dtype(); }
  [[nodiscard]] const Shape& shape() const override { return weight_.shape(); }
  [[nodiscard]] int32_t layer() const override { return weight_.layer(); }
  void read(uint64_t offset, std::span<std::byte> out) const override;

 private:
  const Weight& weight_;
  mutable std::mutex mutex_;  // a backend's weights are read by one thread at a time
};

// Copies of weights on one backend, made when first asked for.
class WeightCopies {
 public:
  explicit WeightCopies(Backend& backend) : backend_(backend) {}
  // The copy of `original` for use by `op`.
  [[nodiscard]] const Weight* get(const Weight* original, OpId op);

 private:
  Backend& backend_;
  std::map<std::pair<const Weight*, WeightUse>, std::unique_ptr<Weight>> copies_;
};

class OpImage {
 public:
  OpImage() = default;

  // ---- made by hand: memory first, then the args that point to it, op by op
  [[nodiscard]] Tensor tensor(const Shape& shape, DType dtype = DType::f32);  // zeroed
  [[nodiscard]] const Weight* weight(std::string name, DType dtype, const Shape& shape,
                                     std::vector<std::byte> canonical, int32_t layer = kNoLayer);
  template <typename Args>
  void add(const Args& args) {
    OpRecord record;
    record.assign(args);
    add_record(record);
  }

  // ---- taken from a backend, before the ops run there. Weights are not copied: the image points to the originals. The
  // ops of a group have one batch.
  [[nodiscard]] static OpImage capture(Backend& backend, std::span<const OpRecord> records);
  // Reads what the ops wrote back from the backend it was captured from, or puts it there. Private results stay away.
  void read_written(Backend& backend);
  void replace_written(Backend& backend) const;

  [[nodiscard]] OpImage clone() const;
  // Copies of the weights come into the image, so that it needs nothing else.
  void own_weights();

  // The ops; their pointers lead into this image.
  [[nodiscard]] const std::vector<OpRecord>& records() const { return records_; }
  // The only op.
  [[nodiscard]] const OpRecord& record() const {
    INFERNO_CHECK(records_.size() == 1);
    return records_[0];
  }

  // ---- the memory itself, for writing images to files and reading them back
  size_t add_block(size_t bytes);  // zeroed; returns its index
  [[nodiscard]] size_t block_count() const { return blocks_.size(); }
  [[nodiscard]] std::span<std::byte> block(size_t index) const {
    return {blocks_[index].data.get(), blocks_[index].bytes};
  }
  // The block that holds the address, and where in it.
  [[nodiscard]] std::pair<size_t, size_t> locate(const void* address) const;
  void add_record(const OpRecord& record) {
    records_.push_back(record);
    mark_written();
  }

 private:
  friend class PlacedOp;
  struct Free {
    void operator()(std::byte* data) const noexcept;
  };
  struct Block {
    std::unique_ptr<std::byte, Free> data;
    size_t bytes = 0;
    bool written = false;
  };
  // A part of a block and the backend memory it came from.
  struct Piece {
    size_t block = 0;
    size_t offset = 0;
    size_t bytes = 0;
    std::byte* origin = nullptr;
    bool written = false;
  };

  class Capture;
  class Relocate;

  void mark_written();

  std::vector<OpRecord> records_;
  std::vector<Block> blocks_;
  std::vector<Piece> pieces_;
  std::vector<std::unique_ptr<HostWeight>> weights_;
};

// An image's copy in a backend's memory, ready to run again and again.
class PlacedOp {
 public:
  // `weights` may be shared by many placed ops of one backend.
  PlacedOp(const OpImage& image, Backend& backend, WeightCopies& weights);

  // The image's memory again, as before the first run.
  void reset();
  // Runs the ops in a step of their own and waits for them.
  void run();
  // The ops, for a step of the caller's own.
  [[nodiscard]] const std::vector<OpRecord>& records() const { return records_; }
  // What the ops wrote, into an image cloned from the one this was made of.
  void download(OpImage& into) const;

 private:
  const OpImage& image_;
  Backend& backend_;
  std::vector<OpRecord> records_;
  std::vector<Buffer> buffers_;  // one per block
};

// The image after its ops ran on the backend.
[[nodiscard]] OpImage run_on(Backend& backend, const OpImage& image);

}  // namespace inferno
