// The seam's own promises: order, planning, scratch memory, the layout of a batch, and steps that mix sequences.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "backend/factory.h"
#include "backend/op_fields.h"
#include "support/allocations.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

constexpr std::string_view kCpuBackends[] = {"scalar", "simd", "parallel"};

class Seam : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { backend_ = create_backend(GetParam()); }
  // One step with the op, planned first. The args point to host memory, which CPU backends compute in.
  template <typename Args>
  void step(const Args& args) {
    for (const StepMode mode : {StepMode::plan, StepMode::run}) {
      backend_->begin_step(mode);
      OpOf<Args>::call(*backend_, args);
      backend_->end_step();
    }
  }
  std::unique_ptr<Backend> backend_;
};

TEST_P(Seam, RecordedOpsRunInOrderNoLaterThanTheEndOfTheStep) {
  std::vector<float> x = {1, 2, 3};
  const Tensor t{x.data(), Shape(1, 3), DType::f32};
  backend_->begin_step(StepMode::run);
  backend_->scale({.x = t, .s = 2, .out = t});
  backend_->add_scalar({.x = t, .s = 1, .out = t});
  backend_->scale({.x = t, .s = 10, .out = t});
  backend_->end_step();
  EXPECT_EQ(x, (std::vector<float>{30, 50, 70}));
}

TEST_P(Seam, DownloadInsideAStepSeesWhatWasRecordedBefore) {
  std::vector<float> x = {1, 2, 3};
  const Tensor t{x.data(), Shape(1, 3), DType::f32};
  float seen = 0;
  backend_->begin_step(StepMode::run);
  backend_->scale({.x = t, .s = 2, .out = t});
  backend_->download(&seen, x.data() + 1, sizeof seen);
  backend_->scale({.x = t, .s = 2, .out = t});
  backend_->end_step();
  EXPECT_EQ(seen, 4);
  EXPECT_EQ(x[1], 8);
}

TEST_P(Seam, PlanningRunsNothing) {
  std::vector<float> x = {1, 2, 3};
  const Tensor t{x.data(), Shape(1, 3), DType::f32};
  backend_->begin_step(StepMode::plan);
  backend_->scale({.x = t, .s = 2, .out = t});
  backend_->end_step();
  EXPECT_EQ(x, (std::vector<float>{1, 2, 3}));
}

TEST_P(Seam, AStepAllocatesNothingAfterItsPlan) {
  for (const bool fused : {true, false}) {
    const auto backend = create_backend(GetParam(), {.fused = fused});
    for (int i = 0; i < kOpCount; ++i) {
      const auto op = static_cast<OpId>(i);
      for (const OpCase& c : op_cases(op)) {
        WeightCopies weights(*backend);
        PlacedOp placed(c.image, *backend, weights);
        const int64_t before = inferno::testing::allocations();
        placed.run();
        EXPECT_EQ(inferno::testing::allocations() - before, 0)
            << op_name(op) << ": " << c.name << (fused ? "" : ", default body");
      }
    }
  }
}

TEST_P(Seam, ScratchIsAlignedApartAndStaysWhileItGrows) {
  backend_->begin_step(StepMode::run);
  std::vector<std::byte*> parts;
  for (size_t i = 0; i < 50; ++i) {
    auto* part = static_cast<std::byte*>(backend_->scratch(1000 + i));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(part) % 64, 0U);
    std::memset(part, static_cast<int>(i), 1000 + i);
    parts.push_back(part);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = 0; j < 1000 + i; ++j) ASSERT_EQ(parts[i][j], static_cast<std::byte>(i));
  }
  backend_->end_step();
}

// The batch of one sequence of a mixed batch; `zeros` and `begin` are arrays of its own.
StepBatch alone(const StepBatch& all, int32_t s, const std::vector<int32_t>& zeros, std::vector<int32_t>& begin) {
  const int32_t first = all.q_begin[s];
  begin = {0, all.q_begin[s + 1] - first};
  StepBatch one = all;
  one.tokens = begin[1];
  one.sequences = 1;
  one.token_ids += first;
  one.pos += first;
  one.slot += first;
  one.seq_of_token = zeros.data();
  one.q_begin = begin.data();
  one.kv_len += s;
  one.block_table += int64_t{s} * all.max_pages;
  return one;
}

const AttentionShape kMixed = {.sequences = {{.cached = 300, .queries = 1},
                                             {.cached = 0, .queries = 40},
                                             {.cached = 250, .queries = 9},
                                             {.cached = 5, .queries = 1}},
                               .q_heads = 6,
                               .kv_heads = 2,
                               .head_dim = 64,
                               .page_size = 16,
                               .kv = DType::f32};

std::vector<float> floats(const Tensor& t) {
  return {t.f32(), t.f32() + t.elements()};
}

// Plain, and with the arguments that only some families use.
std::vector<AttentionShape> mixed_shapes() {
  std::vector<AttentionShape> shapes;
  for (const DType kv : {DType::f32, DType::f16, DType::bf16}) {
    AttentionShape shape = kMixed;
    shape.kv = kv;
    shapes.push_back(shape);
    for (const int32_t window : {7, 50, 280}) {
      shape.window = window;
      shapes.push_back(shape);
    }
    shape.sinks = shape.gate = true;
    shapes.push_back(shape);
    shape.softcap = 3;
    shapes.push_back(shape);
  }
  return shapes;
}

TEST_P(Seam, AttentionOfAMixedStepHasTheBitsOfItsSequencesApart) {
  for (const AttentionShape& shape : mixed_shapes()) {
    const OpImage image = attention_case(shape, 3);
    WeightCopies weights(*backend_);
    AttentionArgs args = image.record().args<AttentionArgs>();
    if (args.sinks != nullptr) args.sinks = weights.get(args.sinks, OpId::attention);
    step(args);
    const std::vector<float> together = floats(args.out);
    std::memset(args.out.data, 0xff, static_cast<size_t>(args.out.bytes()));
    const std::vector<int32_t> zeros(static_cast<size_t>(args.batch.tokens), 0);
    for (int32_t s = 0; s < args.batch.sequences; ++s) {
      std::vector<int32_t> begin;
      AttentionArgs one = args;
      one.batch = alone(args.batch, s, zeros, begin);
      one.q = args.q.row_range(args.batch.q_begin[s], begin[1]);
      one.out = args.out.row_range(args.batch.q_begin[s], begin[1]);
      if (!args.gate.empty()) one.gate = args.gate.row_range(args.batch.q_begin[s], begin[1]);
      step(one);
    }
    EXPECT_EQ(floats(args.out), together) << dtype_name(shape.kv) << ", window " << shape.window;
  }
}

// What a chunk of a prompt reads does not depend on where the chunk begins.
TEST_P(Seam, AttentionOfOneQueryHasTheBitsItHasAmongOthers) {
  for (const AttentionShape& shape : mixed_shapes()) {
    const OpImage image = attention_case(shape, 3);
    WeightCopies weights(*backend_);
    AttentionArgs args = image.record().args<AttentionArgs>();
    if (args.sinks != nullptr) args.sinks = weights.get(args.sinks, OpId::attention);
    step(args);
    const std::vector<float> together = floats(args.out);
    const std::vector<int32_t> zeros(1, 0);
    for (int32_t s = 0; s < args.batch.sequences; ++s) {
      for (int32_t t = args.batch.q_begin[s]; t < args.batch.q_begin[s + 1]; ++t) {
        std::vector<int32_t> begin;
        AttentionArgs one = args;
        one.batch = alone(args.batch, s, zeros, begin);
        begin[1] = 1;
        const int32_t length = args.batch.pos[t] + 1;
        one.batch.tokens = 1;
        one.batch.pos = args.batch.pos + t;
        one.batch.kv_len = &length;
        one.q = args.q.row_range(t, 1);
        one.out = args.out.row_range(t, 1);
        if (!args.gate.empty()) one.gate = args.gate.row_range(t, 1);
        step(one);
      }
    }
    EXPECT_EQ(floats(args.out), together) << dtype_name(shape.kv) << ", window " << shape.window;
  }
}

TEST_P(Seam, ProjectionsOfAMixedStepHaveTheBitsOfItsSequencesApart) {
  for (const DType weight : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_k}) {
    for (const bool general : {false, true}) {
      QkvShape shape{.attention = kMixed, .width = 256, .weight = weight, .qk_norm = true};
      shape.row_norms = shape.v_norm = shape.q_rope = general;
      const OpImage image = qkv_case(shape, 4);
      WeightCopies weights(*backend_);
      QkvRopeStoreArgs args = image.record().args<QkvRopeStoreArgs>();
      for (const Weight** w : {&args.norm, &args.w[0], &args.w[1], &args.w[2], &args.q_norm, &args.k_norm}) {
        *w = weights.get(*w, OpId::qkv_rope_store);
      }
      const std::string before(static_cast<const char*>(args.kv.k),
                               static_cast<size_t>(args.kv.pages * args.kv.page_bytes()));
      step(args);
      const std::vector<float> together = floats(args.q);
      const std::string stored(static_cast<const char*>(args.kv.k), before.size());
      std::memset(args.q.data, 0xff, static_cast<size_t>(args.q.bytes()));
      std::memcpy(args.kv.k, before.data(), before.size());
      const std::vector<int32_t> zeros(static_cast<size_t>(args.batch.tokens), 0);
      for (int32_t s = 0; s < args.batch.sequences; ++s) {
        std::vector<int32_t> begin;
        QkvRopeStoreArgs one = args;
        one.batch = alone(args.batch, s, zeros, begin);
        one.x = args.x.row_range(args.batch.q_begin[s], begin[1]);
        one.q = args.q.row_range(args.batch.q_begin[s], begin[1]);
        step(one);
      }
      EXPECT_EQ(floats(args.q), together) << dtype_name(weight);
      EXPECT_TRUE(stored == std::string(static_cast<const char*>(args.kv.k), before.size())) << dtype_name(weight);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Seam, ::testing::ValuesIn(kCpuBackends),
                         [](const auto& param) { return std::string(param.param); });

TEST(HostBatch, ArraysLieAtOffsetsThatDependOnTheCapacityAlone) {
  const BatchCapacity capacity{.max_tokens = 7, .max_sequences = 3, .max_logit_rows = 4, .max_pages = 5};
  HostBatch batch(capacity);
  const StepBatch empty = batch.view(batch.block().data());
  const std::vector<int32_t> pages = {9, 4};
  batch.begin_sequence(6, pages.data(), 2);
  batch.add_token(100, 4, 36, false);
  batch.add_token(101, 5, 37, true);
  batch.begin_sequence(1, pages.data() + 1, 1, 2);
  batch.add_token(102, 0, -1, true);
  const StepBatch view = batch.view(batch.block().data());
  EXPECT_EQ(view.tokens, 3);
  EXPECT_EQ(view.sequences, 2);
  EXPECT_EQ(view.logit_rows, 2);
  for (const auto member :
       {&StepBatch::token_ids, &StepBatch::pos, &StepBatch::seq_of_token, &StepBatch::q_begin, &StepBatch::kv_len,
        &StepBatch::slot, &StepBatch::block_table, &StepBatch::logit_row_ids, &StepBatch::state_slot}) {
    EXPECT_EQ(view.*member, empty.*member);
  }
  const auto ints = [](const int32_t* data, int64_t n) { return std::vector<int32_t>(data, data + n); };
  EXPECT_EQ(ints(view.token_ids, 3), (std::vector<int32_t>{100, 101, 102}));
  EXPECT_EQ(ints(view.pos, 3), (std::vector<int32_t>{4, 5, 0}));
  EXPECT_EQ(ints(view.seq_of_token, 3), (std::vector<int32_t>{0, 0, 1}));
  EXPECT_EQ(ints(view.q_begin, 3), (std::vector<int32_t>{0, 2, 3}));
  EXPECT_EQ(ints(view.kv_len, 2), (std::vector<int32_t>{6, 1}));
  EXPECT_EQ(ints(view.slot, 3), (std::vector<int32_t>{36, 37, -1}));
  EXPECT_EQ(ints(view.state_slot, 2), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(ints(view.block_table, 2), pages);
  EXPECT_EQ(view.block_table[5], 4);
  EXPECT_EQ(ints(view.logit_row_ids, 2), (std::vector<int32_t>{1, 2}));
  // All arrays lie inside the block.
  EXPECT_EQ(static_cast<int64_t>(batch.block().size()), capacity.ints());
  EXPECT_LE(view.block_table + 15, batch.block().data() + batch.block().size());
}

TEST(OpImage, CaptureTakesTheOpAwayAndBringsItsResultsBack) {
  const auto backend = create_backend("scalar");
  const OpImage original = qkv_case({.attention = kMixed, .width = 256, .weight = DType::q8_0}, 5);
  QkvRopeStoreArgs args = original.record().args<QkvRopeStoreArgs>();
  OpRecord record;
  record.assign(args);
  // The op of the original, seen as memory of a backend; pages are renumbered on the way.
  OpImage captured = OpImage::capture(*backend, {&record, 1});
  EXPECT_LT(captured.record().args<QkvRopeStoreArgs>().kv.pages, args.kv.pages);
  const auto other = create_backend("scalar");
  WeightCopies weights(*other);
  PlacedOp placed(captured, *other, weights);
  placed.run();
  placed.download(captured);
  captured.replace_written(*backend);

  const OpImage again = qkv_case({.attention = kMixed, .width = 256, .weight = DType::q8_0}, 5);
  QkvRopeStoreArgs direct = again.record().args<QkvRopeStoreArgs>();
  WeightCopies own(*backend);
  for (const Weight** w : {&direct.norm, &direct.w[0], &direct.w[1], &direct.w[2]})
    *w = own.get(*w, OpId::qkv_rope_store);
  for (const StepMode mode : {StepMode::plan, StepMode::run}) {
    backend->begin_step(mode);
    backend->qkv_rope_store(direct);
    backend->end_step();
  }
  EXPECT_EQ(floats(args.q), floats(direct.q));
  const auto bytes = static_cast<size_t>(args.kv.pages * args.kv.page_bytes());
  EXPECT_EQ(std::memcmp(args.kv.k, direct.kv.k, bytes), 0);
  EXPECT_EQ(std::memcmp(args.kv.v, direct.kv.v, bytes), 0);
}

}  // namespace
}  // namespace inferno
