// Seeing through whole models: lockstep checks that pass where they should and name the op where they should not,
// profiles and traces that agree, and plans.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/select.h"
#include "backend/op_fields.h"
#include "backend/placement.h"
#include "base/error.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "model/quantize_model.h"
#include "profile/dry_backend.h"
#include "profile/profiling_backend.h"
#include "support/test_data.h"
#include "tensor/dtype.h"
#include "verify/check.h"

namespace inferno::testing {
namespace {

constexpr const char* kModels[] = {"llama.gguf", "llama3-scaled.gguf", "qwen2-tied.gguf", "qwen2-untied.gguf",
                                   "qwen3-tied.gguf"};
const std::vector<int32_t> kPrompt = {51, 71, 68, 262, 283};

struct Lockstep {
  std::string tested = "simd";
  std::string reference = "scalar";
  int threads = 0;  // not 0: so many, of "parallel", however many CPUs there are
  bool fused = true;
  std::optional<OpId> plant;
  int32_t tokens = 2;
  std::optional<DType> kv;
  std::vector<int32_t> prompt = kPrompt;
};

// What a check saw of a run.
struct Seen {
  std::set<OpId> called;
  std::optional<OpCheck> first;
  std::string report;
  size_t fused = 0;  // ops of the last step that had the private result of the one before in a form of its own
};

Seen run(const GgufFile& file, const Lockstep& how) {
  EngineOptions options;
  options.backend = how.tested;
  options.backend_options.fused = how.fused;
  options.context = 64;
  options.kv_dtype = how.kv;
  CheckingBackend* checking = nullptr;
  options.decorate = [&](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
    if (how.threads > 0) {
      auto pool =
          std::make_unique<ThreadPool>(ThreadPoolOptions{.threads = how.threads, .allow_oversubscription = true});
      backend = std::make_unique<CpuBackend>("parallel", best_kernels(), std::move(pool), DType::bf16, how.fused);
    }
    auto created = std::make_unique<CheckingBackend>(
        std::move(backend), create_backend(how.reference, {.fused = how.fused}),
        CheckOptions{.numerics = how.fused ? Numerics::cpu_kernels : Numerics::default_bodies, .plant = how.plant});
    checking = created.get();
    return created;
  };
  Engine engine(file, options);
  checking->set_timing(true);
  (void)generate(engine, {.prompt = how.prompt, .max_new_tokens = how.tokens, .stop_at_end = false});
  Seen seen{.called = {}, .first = checking->first_divergence(), .report = checking->report()};
  for (const auto& [ops, totals] : checking->totals()) seen.called.insert(ops.begin(), ops.end());
  for (const uint8_t fused : checking->step_times()->fused) seen.fused += fused;
  return seen;
}

TEST(LockstepOnModels, BackendsAgreeOpByOp) {
  for (const char* model : kModels) {
    const GgufFile file = GgufFile::open(fixture(model));
    for (const char* tested : {"simd", "parallel"}) {
      for (const DType kv : {DType::f32, DType::f16, DType::bf16}) {
        const Seen seen = run(file, {.tested = tested, .kv = kv});
        EXPECT_FALSE(seen.first) << model << " on " << tested << "\n" << seen.report;
      }
    }
    const Seen many = run(file, {.threads = 4});
    EXPECT_FALSE(many.first) << model << " on four threads\n" << many.report;
    EXPECT_GT(many.fused, 0U) << "decoding on four threads joins ops";
  }
}

TEST(LockstepOnModels, TheBuiltInModelAgreesOnEveryBackend) {
  std::optional<GgufFile> builtin;
  try {
    builtin.emplace(open_builtin_model());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const GgufFile& file = *builtin;
  for (const char* tested : {"simd", "parallel", "parallel,attention=scalar,blk.3.linear=simd"}) {
    const Seen seen = run(file, {.tested = tested, .tokens = 1});
    EXPECT_FALSE(seen.first) << tested << "\n" << seen.report;
  }
}

void expect_agreement(const std::string& path) {
  const GgufFile file = GgufFile::open(path);
  for (const char* reference : {"scalar", "simd"}) {
    const Seen seen = run(file, {.tested = "parallel", .reference = reference, .tokens = 1});
    EXPECT_FALSE(seen.first) << path << " against " << reference << "\n" << seen.report;
  }
}

TEST(LockstepOnModels, TestModelsAgree) {
  for (const std::string& folder : shipped_data("models")) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.path().extension() == ".gguf") expect_agreement(entry.path());
    }
  }
}

TEST(LockstepOnModels, AModelAgreesInEveryType) {
  const GgufFile source = GgufFile::open(shipped_data("models/tiny-qwen3-mini/tiny-qwen3-mini-Q4_K.gguf").at(0));
  for (const DTypeInfo& type : kDTypes) {
    if (type.dtype == DType::i32) continue;
    const std::string path = ::testing::TempDir() + "inferno-lockstep-" + std::string(type.name) + ".gguf";
    quantize_model(source, path, type.name, {.pure = true});
    expect_agreement(path);
    std::remove(path.c_str());
  }
}

TEST(LockstepOnModels, DefaultBodiesAgreePrimitiveByPrimitive) {
  for (const char* model : {"llama.gguf", "qwen2-tied.gguf", "qwen3-tied.gguf"}) {
    const GgufFile file = GgufFile::open(fixture(model));
    const Seen seen = run(file, {.fused = false, .tokens = 1});
    EXPECT_FALSE(seen.first) << model << "\n" << seen.report;
  }
}

TEST(LockstepOnModels, APlantedErrorIsNamedForEveryOpTheRunCalls) {
  for (const char* model : kModels) {
    const GgufFile file = GgufFile::open(fixture(model));
    const std::set<OpId> called = run(file, {}).called;
    EXPECT_GE(called.size(), 7U);
    for (const OpId op : called) {
      for (const int threads : {0, 4}) {
        const Seen seen = run(file, {.threads = threads, .plant = op});
        ASSERT_TRUE(seen.first) << model << " " << op_name(op) << ", " << threads << " threads";
        EXPECT_EQ(seen.first->blamed, op) << model << " " << op_name(op) << ", " << threads << " threads";
      }
    }
  }
}

TEST(LockstepOnModels, APlantedErrorOfADecodingStepIsFoundWhereItsOpsAreJoined) {
  const GgufFile file = GgufFile::open(fixture("qwen3-tied.gguf"));
  for (const OpId op : {OpId::qkv_rope_store, OpId::attention, OpId::linear}) {
    // The prompt is one token, so every step is one of decoding; attention to itself alone cannot be wrong.
    const Seen seen = run(file, {.threads = 4, .plant = op, .prompt = {51}});
    ASSERT_TRUE(seen.first) << op_name(op);
    EXPECT_EQ(seen.first->blamed, op);
    EXPECT_GT(seen.fused, 0U);
  }
}

TEST(LockstepOnModels, APlantedErrorIsNamedForEveryPrimitiveOfTheDefaultBodies) {
  for (const char* model : kModels) {
    const GgufFile file = GgufFile::open(fixture(model));
    const std::set<OpId> called = run(file, {.fused = false, .tokens = 1}).called;
    EXPECT_GE(called.size(), 19U) << model;
    for (const OpId op : called) {
      const Seen seen = run(file, {.fused = false, .plant = op, .tokens = 1});
      ASSERT_TRUE(seen.first) << model << " " << op_name(op);
      EXPECT_EQ(seen.first->blamed, op) << model << " " << op_name(op);
    }
  }
}

TEST(ProfileOfModels, TableTraceAndStepsAgree) {
  const GgufFile file = GgufFile::open(fixture("qwen3-tied.gguf"));
  const auto path = std::filesystem::temp_directory_path() / ("inferno-see-" + std::to_string(::getpid()) + ".json");
  for (const char* name : {"simd", "parallel", "parallel,attention=scalar"}) {
    MachineLimits limits;
    limits.read = {{.working_set = 1e6, .gb_per_s = 50, .streams = 1}};
    limits.multiply = {50, 50, 50, 50};
    Profile profile(name, limits);
    TraceWriter trace(path, name);
    EngineOptions options;
    options.backend = name;
    options.context = 64;
    options.decorate = [&](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
      return std::make_unique<ProfilingBackend>(std::move(backend), &profile, &trace);
    };
    {
      Engine engine(file, options);
      (void)generate(engine, {.prompt = kPrompt, .max_new_tokens = 6, .stop_at_end = false});
    }
    trace.finish();

    const PhaseTotals& prefill = profile.phase(Phase::prefill);
    const PhaseTotals& decode = profile.phase(Phase::decode);
    EXPECT_EQ(prefill.tokens, 5);
    EXPECT_EQ(decode.tokens, 5);
    EXPECT_EQ(decode.steps, 5);
    for (const PhaseTotals* totals : {&prefill, &decode}) {
      EXPECT_GT(totals->ops_us(), 0);
      EXPECT_LE(totals->ops_us(), totals->step_us * 1.0001);
      double layers = totals->outside_us;
      for (const double us : totals->layer_us) layers += us;
      EXPECT_NEAR(layers, totals->ops_us(), 1e-6 * layers);
    }

    std::ifstream in(path);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(check_trace(text), "") << name;
    std::map<std::string, double> spans;
    const nlohmann::json json = nlohmann::json::parse(text);
    for (const auto& event : json["traceEvents"]) {
      if (event["ph"] == "X" && event["cat"] == "op") spans[event["name"]] += event["dur"].get<double>();
    }
    for (int i = 0; i < kOpCount; ++i) {
      const auto index = static_cast<size_t>(i);
      const double table = prefill.ops[index].total_us + decode.ops[index].total_us;
      EXPECT_NEAR(spans[std::string(op_name(static_cast<OpId>(i)))], table, 0.1 + 1e-3 * table) << name;
    }
  }
  std::filesystem::remove(path);
}

TEST(Instruments, OffMeansAbsent) {
  EngineOptions options;
  options.context = 64;
  Engine engine(GgufFile::open(fixture("qwen3-tied.gguf")), options);
  EXPECT_EQ(dynamic_cast<BackendDecorator*>(&engine.backend()), nullptr);
  BareSequence(engine).forward(0, kPrompt, 1);
  EXPECT_TRUE(engine.backend().step_times() == nullptr || engine.backend().step_times()->ops.empty());
}

TEST(DryRun, RecordsTheStepsOfAModelWithoutItsMemory) {
  const GgufFile file = GgufFile::open(fixture("qwen3-tied.gguf"));
  DryBackend* dry = nullptr;
  EngineOptions options;
  options.context = 64;
  options.decorate = [&](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
    auto created = std::make_unique<DryBackend>(std::move(backend));
    dry = created.get();
    return created;
  };
  Engine engine(file, options);
  BareSequence(engine).forward(0, kPrompt, 1);
  const auto layers = engine.model().config().layers.size();
  ASSERT_EQ(dry->step().size(), 2 + 4 * layers);
  EXPECT_EQ(dry->step().front().op(), OpId::embed);
  EXPECT_EQ(dry->step().back().op(), OpId::logits);
  EXPECT_EQ(layer_of(dry->step()[1]), 0);
  EXPECT_THROW(require_matches(parse_placement("scalar,blk.99.linear=simd"), dry->step()), Error);
}

}  // namespace
}  // namespace inferno::testing
