// Every op of the list, on every backend of this build, against its definition: primitives against double precision,
// fused ops against their default body on the scalar backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "backend/factory.h"
#include "backend/op_extras.h"
#include "backend/op_fields.h"
#include "base/error.h"
#include "primitive_reference.h"
#include "support/emulated.h"
#include "verify/compare.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

OpImage run_definition(const OpImage& image) {
  if (!is_fused(image.record().op())) {
    OpImage result = image.clone();
    test::run_primitive(result);
    return result;
  }
  const auto scalar = create_backend("scalar", {.fused = false});
  return run_on(*scalar, image);
}

// The cache bytes outside the batch's slots, which nobody may touch.
class OtherCacheBytes final : public FieldVisitor {
 public:
  void kv(FieldTag tag, std::string_view /*name*/, KvLayerView& view) override {
    if (is_written(tag)) view_ = view;
  }
  void batch(std::string_view /*name*/, StepBatch& b) override {
    if (view_.k == nullptr) return;
    for (const KvLayerView& rows : {view_, view_.values()}) {
      std::string memory(static_cast<const char*>(rows.k), static_cast<size_t>(rows.pages * rows.page_bytes()));
      for (int32_t t = 0; t < b.tokens; ++t) {
        for (int32_t head = 0; b.slot[t] >= 0 && head < rows.kv_heads; ++head) {
          std::memset(memory.data() + rows.row_offset(b.slot[t], head), 0, static_cast<size_t>(rows.row_bytes()));
        }
      }
      bytes += memory;
    }
  }
  std::string bytes;

 private:
  KvLayerView view_;
};

std::string other_cache_bytes(const OpImage& image) {
  OtherCacheBytes visitor;
  visit_fields(image.record(), visitor);
  return visitor.bytes;
}

void expect_same(const OpImage& before, const OpImage& reference, const OpImage& tested, double limit) {
  for (const FieldDifference& d : compare_written(before, reference, tested)) {
    EXPECT_GT(d.elements, 0) << d.field;
    EXPECT_FALSE(d.beyond(limit)) << d.field << " of " << d.elements << " elements: nmse " << d.nmse << " of " << limit
                                  << ", largest difference " << d.max_abs << " at " << d.worst << ": " << d.worst_tested
                                  << " instead of " << d.worst_reference;
  }
}

// The types of an op's matrices.
class MatrixTypes final : public FieldVisitor {
 public:
  void weight(std::string_view /*name*/, const Weight*& w) override {
    if (w != nullptr && w->shape().rank > 1) types.push_back(w->dtype());
  }
  std::vector<DType> types;
};

// Devices lack some arguments, and some types of weights.
bool can_run(const Backend& backend, const OpRecord& record) {
  MatrixTypes matrices;
  visit_fields(record, matrices);
  return backend.supports(record) &&
         (backend.cpu_numerics() || std::all_of(matrices.types.begin(), matrices.types.end(),
                                                [&](DType dtype) { return backend.supports(record.op(), dtype); }));
}

class Parity : public testing::TestWithParam<std::tuple<std::string_view, bool>> {
 protected:
  void SetUp() override {
    const auto [name, fused] = GetParam();
    backend_ = create_backend(name, {.fused = fused});
    if (!fused && !backend_->cpu_numerics()) GTEST_SKIP() << name << " needs its own kernels for fused ops";
  }
  // Devices need the fused ops and kv_store; other primitives are optional there.
  [[nodiscard]] bool must_have(OpId op) const {
    return backend_->cpu_numerics() || is_fused(op) || op == OpId::kv_store;
  }
  std::unique_ptr<Backend> backend_;
};

TEST_P(Parity, EveryOpGivesWhatItsDefinitionGives) {
  if (kSanitized && !std::get<1>(GetParam()) && std::get<0>(GetParam()) != "scalar")
    GTEST_SKIP() << "slow under a sanitizer, and the code of scalar's";
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpId>(i);
    for (const OpCase& c : op_cases(op)) {
      SCOPED_TRACE(std::string(op_name(op)) + ": " + c.name);
      if (!must_have(op) && !backend_->supports(op, DType::f32)) continue;
      if (!can_run(*backend_, c.image.record())) continue;
      const OpImage reference = run_definition(c.image);
      const OpImage tested = run_on(*backend_, c.image);
      expect_same(c.image, reference, tested, nmse_limit(c.image.record(), Numerics::definition));
      EXPECT_EQ(other_cache_bytes(tested), other_cache_bytes(c.image)) << "the cache changed outside the slots";
    }
  }
}

class KernelParity : public Parity {};

TEST_P(KernelParity, KernelsKeepTheNumericsContractAndRepeatTheirBits) {
  const auto scalar = create_backend("scalar");
  for (const OpId op :
       {OpId::linear, OpId::qkv_rope_store, OpId::attention, OpId::gated_mlp, OpId::moe_mlp, OpId::short_conv,
        OpId::delta_net, OpId::mamba2, OpId::layer_input, OpId::latent_store, OpId::head_linear, OpId::logits}) {
    for (const OpCase& c : op_cases(op)) {
      SCOPED_TRACE(std::string(op_name(op)) + ": " + c.name);
      if (!can_run(*backend_, c.image.record())) continue;
      WeightCopies weights(*backend_);
      PlacedOp placed(c.image, *backend_, weights);
      OpImage first = c.image.clone();
      OpImage second = c.image.clone();
      placed.run();
      placed.download(first);
      placed.reset();
      placed.run();
      placed.download(second);
      expect_same(c.image, first, second, 0);
      // Devices promise a tolerance against the definition only.
      if (!backend_->cpu_numerics()) continue;
      expect_same(c.image, run_on(*scalar, c.image), first, nmse_limit(c.image.record(), Numerics::cpu_kernels));
    }
  }
}

// The backends that run here; `missing` gets the reasons why others do not.
std::vector<std::string_view> backends_here(std::string* missing = nullptr) {
  std::vector<std::string_view> names;
  for (const std::string_view name : backend_names()) {
    try {
      (void)create_backend(name);
      if (is_too_slow(name)) fail("{} is too slow under a sanitizer", name);
      names.push_back(name);
    } catch (const Error& error) {
      if (missing != nullptr) *missing += (missing->empty() ? "" : "; ") + std::string(error.what());
    }
  }
  return names;
}

std::string suite_name(const testing::TestParamInfo<Parity::ParamType>& info) {
  return std::string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "_kernels" : "_default_bodies");
}

INSTANTIATE_TEST_SUITE_P(Backends, Parity, testing::Combine(testing::ValuesIn(backends_here()), testing::Bool()),
                         suite_name);
INSTANTIATE_TEST_SUITE_P(Backends, KernelParity,
                         testing::Combine(testing::ValuesIn(backends_here()), testing::Values(true)), suite_name);

TEST(ParityRegistry, EveryBackendRunsHere) {
  std::string missing;
  (void)backends_here(&missing);
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(ParityRegistry, EveryOpHasACase) {
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpId>(i);
    EXPECT_FALSE(op_cases(op).empty()) << op_name(op);
    for (const OpCase& c : op_cases(op)) EXPECT_EQ(c.image.record().op(), op) << c.name;
  }
}

TEST(ParityRegistry, EveryArgumentOfSomeFamiliesHasACaseOfItsOwn) {
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpId>(i);
    std::map<std::string, bool> alone;  // by argument
    bool plain = false;
    for (const OpCase& c : op_cases(op)) {
      const std::string used = extras_of(c.image.record());
      plain = plain || used.empty();
      c.image.record().visit([&](const auto& args) {
        visit_extras(args, [&](std::string_view name, bool) {
          bool& seen = alone[std::string(name)];
          seen = seen || used == name;
        });
      });
    }
    EXPECT_TRUE(plain) << op_name(op);
    for (const auto& [name, seen] : alone) EXPECT_TRUE(seen) << op_name(op) << ": " << name;
  }
}

TEST(ParityRegistry, AnErrorInAnyOutputShows) {
  class Break final : public FieldVisitor {
   public:
    void tensor(FieldTag tag, std::string_view /*name*/, Tensor& t) override {
      if (!is_written(tag) || t.data == nullptr) return;
      if (t.dtype == DType::i32) {
        t.as<int32_t>()[0] += 1;
      } else {
        t.f32()[0] = t.f32()[0] * 1.5F + 1;
      }
    }
    void kv(FieldTag tag, std::string_view /*name*/, KvLayerView& view) override {
      if (is_written(tag)) view_ = view;
    }
    void batch(std::string_view /*name*/, StepBatch& b) override {
      if (view_.k == nullptr) return;
      static_cast<unsigned char*>(view_.k)[view_.row_offset(b.slot[0], 0) + view_.row_bytes() - 1] ^= 0x7e;
      static_cast<unsigned char*>(view_.v)[view_.row_offset(b.slot[0], 0) + view_.row_bytes() - 1] ^= 0x7e;
    }

   private:
    KvLayerView view_;
  };
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpId>(i);
    const std::vector<OpCase> cases = op_cases(op);
    const OpImage reference = run_definition(cases.front().image);
    OpImage broken = reference.clone();
    Break breaker;
    visit_fields(broken.record(), breaker);
    for (const FieldDifference& d : compare_written(cases.front().image, reference, broken)) {
      EXPECT_TRUE(d.beyond(nmse_limit(reference.record(), Numerics::definition))) << op_name(op) << " " << d.field;
    }
  }
}

}  // namespace
}  // namespace inferno
