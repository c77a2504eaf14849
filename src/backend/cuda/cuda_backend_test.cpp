// Whole steps on the device against the scalar backend: prompts, decoding with captured graphs, batches. The single ops
// are held to their definitions by the parity tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "backend/cuda/cuda.h"
#include "backend/cuda/test_device.h"
#include "backend/factory.h"
#include "backend/step_times.h"
#include "base/error.h"
#include "synthetic/model_run.h"
#include "synthetic/random_weight.h"
#include "synthetic/synthetic_model.h"

namespace inferno {
namespace {

// A small random model and how it is run.
struct RunConfig {
  ModelShape shape = find_model_shape("tiny");
  std::string type;
  RunLimits limits;
};

ModelRun start(Backend& backend, const RunConfig& config) {
  return {backend, SyntheticModel(config.shape, config.type), config.limits};
}

// Takes all pages and gives them back so that later no sequence gets consecutive ones: `stride` apart, from the last.
void scatter_pages(PagePool& pool, int32_t stride) {
  while (pool.allocate() >= 0) {
  }
  for (int32_t first = 0; first < stride; ++first) {
    for (int32_t page = first; page < pool.pages(); page += stride) pool.release(page);
  }
}

class Steps : public testing::TestWithParam<RunConfig> {};

// The scalar model is fed the tokens that the device drew, so that the two cannot diverge at a near tie.
TEST_P(Steps, PromptsAndDecodingGiveTheLogitsOfTheScalarBackend) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  const RunConfig& config = GetParam();
  const auto scalar = create_backend("scalar");
  ModelRun tested = start(*device, config);
  ModelRun reference = start(*scalar, config);
  scatter_pages(tested.cache().pool(), config.limits.max_sequences);
  // Activations in 8 bits, weights and cache in 16: errors of a few per cent of a per cent per layer; of K-quants
  // more, because a scale is shared by 256 activations instead of 32.
  const double limit = config.type.find("_K") == std::string::npos ? 2e-3 : 5e-3;
  for (int32_t s = 0; s < config.limits.max_sequences; ++s) {
    const std::vector<int32_t> prompt = prompt_of(s == 0 ? 70 : 3 + 5 * s % 170);
    tested.prefill(s, prompt);
    reference.prefill(s, prompt);
    EXPECT_LE(nmse(reference.logits(), tested.logits()), limit) << "prompt " << s;
  }
  for (int step = 0; step < 6; ++step) {  // from the third on a captured graph runs
    tested.decode(config.limits.max_sequences);
    reference.follow(tested);
    reference.decode(config.limits.max_sequences);
    EXPECT_LE(nmse(reference.logits(), tested.logits()), limit) << "step " << step;
  }
}

RunConfig with(std::string type, uint32_t head_dim, int32_t sequences) {
  RunConfig c{.type = std::move(type), .limits = {.context = 192, .max_sequences = sequences}};
  c.shape.head_dim = head_dim;
  c.shape.q_heads = c.shape.width / head_dim * 2;
  c.shape.kv_heads = c.shape.q_heads / 2;
  return c;
}

std::vector<RunConfig> configs() {
  std::vector<RunConfig> all;
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q6_K"}) all.push_back(with(type, 64, 1));
  all.push_back(with("BF16", 128, 3));
  all.push_back(with("Q8_0", 128, 20));
  all.push_back(with("BF16", 64, 40));  // enough sequences for the persistent attention kernel
  all.push_back(with("Q4_0", 128, 70));
  all.push_back(with("BF16", 128, 12));  // norms that two products share
  all.push_back(with("Q6_K", 128, 130));
  all.push_back(with("Q8_0", 32, 2));  // no tensor-core attention
  RunConfig mixed = with("Q4_K_M", 128, 2);
  mixed.limits.kv = DType::f16;
  all.push_back(mixed);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, Steps, testing::ValuesIn(configs()), [](const auto& param) {
  const RunConfig& c = param.param;
  return c.type + "_" + std::to_string(c.shape.head_dim) + "_wide_" + std::to_string(c.limits.max_sequences) +
         "_sequences";
});

TEST(CudaBackend, ALaterUploadToTheSameMemoryWins) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  const Buffer buffer = device->allocate(64 * sizeof(int32_t));
  auto* data = static_cast<int32_t*>(buffer.data());
  const std::vector<int32_t> first(64, 1);
  const std::vector<int32_t> second(32, 2);
  std::vector<int32_t> expected = first;
  std::copy(second.begin(), second.end(), expected.begin() + 16);
  for (int run = 0; run < 3; ++run) {
    device->upload(data, first.data(), first.size() * sizeof(int32_t));
    device->upload(data + 16, second.data(), second.size() * sizeof(int32_t));
    std::vector<int32_t> read(64);
    device->download(read.data(), data, read.size() * sizeof(int32_t));
    EXPECT_EQ(read, expected);
  }
}

TEST(CudaBackend, CopiesOfTheCacheAreOrderedWithUploadsAndDownloads) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  constexpr size_t kInts = 64;
  const Buffer buffer = device->allocate_cache(0, 3 * kInts * sizeof(int32_t));
  auto* data = static_cast<int32_t*>(buffer.data());
  const auto page = [&](size_t i) { return data + i * kInts; };
  const std::vector<int32_t> first(kInts, 1);
  const std::vector<int32_t> second(kInts, 2);
  for (int run = 0; run < 3; ++run) {
    device->upload(page(0), first.data(), first.size() * sizeof(int32_t));
    device->copy_cache(0, page(1), page(0), kInts * sizeof(int32_t));
    device->upload(page(0), second.data(), second.size() * sizeof(int32_t));
    device->copy_cache(0, page(2), page(0), kInts * sizeof(int32_t));
    device->copy_cache(0, page(0), page(1), kInts * sizeof(int32_t));
    std::vector<int32_t> read(3 * kInts);
    device->download(read.data(), data, read.size() * sizeof(int32_t));
    std::vector<int32_t> expected(2 * kInts, 1);
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_EQ(read, expected);
  }
}

TEST(CudaBackend, StepsWhoseSequencesChangeGiveTheLogitsOfTheScalarBackend) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  for (const char* type : {"BF16", "Q8_0"}) {
    const RunConfig config = with(type, 64, 6);
    const auto scalar = create_backend("scalar");
    ModelRun tested = start(*device, config);
    ModelRun reference = start(*scalar, config);
    const auto prefill = [&](int32_t s, int32_t count) {
      tested.prefill(s, prompt_of(count));
      reference.prefill(s, prompt_of(count));
    };
    for (int32_t s = 0; s < 4; ++s) prefill(s, 20 + 7 * s);
    for (const int32_t sequences : {4, 3, 4, 3, 4, 3, 1, 4, 2, 3, 1, 2, 4, 1}) {
      tested.decode(sequences);
      reference.follow(tested);
      reference.decode(sequences);
      EXPECT_LE(nmse(reference.logits(), tested.logits()), 2e-3) << type << ", " << sequences;
    }
    for (const int32_t s : {4, 5}) prefill(s, 40);  // new ones beside those that run
    for (const int32_t sequences : {6, 5, 6, 5, 6, 4}) {
      tested.decode(sequences);
      reference.follow(tested);
      reference.decode(sequences);
      EXPECT_LE(nmse(reference.logits(), tested.logits()), 2e-3) << type << ", " << sequences;
    }
  }
}

// A step's time includes that of a replay if it has a graph.
TEST(CudaBackend, StepsOfAlternatingSizesAreCapturedAndReplayed) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  ModelRun model = start(*device, with("BF16", 64, 3));
  for (int32_t s = 0; s < 3; ++s) model.prefill(s, prompt_of(20 + s));
  device->set_timing(true);
  for (int round = 0; round < 4; ++round) {
    for (const int32_t sequences : {3, 2, 1}) {
      model.decode(sequences);
      const StepTimes* times = device->step_times();
      ASSERT_NE(times, nullptr);
      EXPECT_EQ(times->replay_us > 0, round > 0) << "round " << round << ", sequences " << sequences;
    }
  }
}

TEST(CudaBackend, StepsWhoseUploadsVaryAreReplayedToo) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  ModelRun model = start(*device, with("BF16", 64, 1));
  const Buffer buffer = device->allocate(64 * sizeof(int32_t));
  const std::vector<int32_t> data(64, 1);
  model.prefill(0, prompt_of(20));
  device->set_timing(true);
  for (size_t step = 0; step < 12; ++step) {
    device->upload(buffer.data(), data.data(), (step + 1) * sizeof(int32_t));
    model.decode(1);
    const StepTimes* times = device->step_times();
    ASSERT_NE(times, nullptr);
    // Captured with its uploads, then, as they differ, without.
    EXPECT_EQ(times->replay_us > 0, step == 1 || step > 2) << "step " << step;
  }
}

TEST(CudaBackend, TheSameStepGivesTheSameBitsCapturedOrNot) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  ModelRun model = start(*device, with("Q8_0", 64, 1));
  const std::vector<int32_t> prompt = prompt_of(33);
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 3; ++run) {
    model.reset();
    model.prefill(0, prompt);
    std::vector<float> all;
    for (int step = 0; step < 5; ++step) {
      model.decode(1);
      const std::vector<float> logits = model.logits();
      all.insert(all.end(), logits.begin(), logits.end());
    }
    runs.push_back(std::move(all));
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

TEST(CudaBackend, DeepContextsAreSplitOverBlocks) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  RunConfig config = with("BF16", 128, 2);
  config.limits.context = 1500;
  config.shape.layers = 1;
  const auto scalar = create_backend("scalar");
  ModelRun tested = start(*device, config);
  ModelRun reference = start(*scalar, config);
  for (const int32_t count : {500, 511, 301}) {
    const std::vector<int32_t> prompt = prompt_of(count);
    tested.prefill(0, prompt);
    reference.prefill(0, prompt);
    EXPECT_LE(nmse(reference.logits(), tested.logits()), 1e-3);
  }
  tested.prefill(1, prompt_of(5));
  reference.prefill(1, prompt_of(5));
  for (int step = 0; step < 4; ++step) {
    tested.decode(2);
    reference.follow(tested);
    reference.decode(2);
    EXPECT_LE(nmse(reference.logits(), tested.logits()), 1e-3) << "step " << step;
  }
}

// One block of positions, two that are a cluster, several clusters; the steps cross from each to the next.
TEST(CudaBackend, ContextsOfEveryNumberOfBlocksGiveTheLogitsOfTheScalarBackend) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  for (const uint32_t head_dim : {64U, 128U}) {
    RunConfig config = with("BF16", head_dim, 4);
    config.limits.context = 1000;
    config.shape.layers = 1;
    const auto scalar = create_backend("scalar");
    ModelRun tested = start(*device, config);
    ModelRun reference = start(*scalar, config);
    int32_t sequence = 0;
    for (const int32_t depth : {126, 254, 400, 766}) {
      for (int32_t done = 0; done < depth; done += 400) {
        const std::vector<int32_t> prompt = prompt_of(std::min(400, depth - done));
        tested.prefill(sequence, prompt);
        reference.prefill(sequence, prompt);
      }
      ++sequence;
    }
    for (int step = 0; step < 6; ++step) {
      tested.decode(sequence);
      reference.follow(tested);
      reference.decode(sequence);
      EXPECT_LE(nmse(reference.logits(), tested.logits()), 1e-3) << head_dim << " wide, step " << step;
    }
  }
}

TEST(CudaBackend, WeightsGiveBackTheirRows) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  const auto scalar = create_backend("scalar");
  for (const DType dtype : {DType::f32, DType::f16, DType::q8_0, DType::q5_1, DType::q2_k, DType::q3_k, DType::q6_k,
                            DType::iq4_nl, DType::mxfp4, DType::iq4_xs}) {
    const RandomWeight rows(dtype, Shape(37, 768), 1);
    const auto a = device->load_weight(rows, WeightUse::matmul);
    const auto b = scalar->load_weight(rows, WeightUse::matmul);
    std::vector<std::byte> row_a(static_cast<size_t>(row_bytes(dtype, 768)));
    std::vector<std::byte> row_b(row_a.size());
    for (const int64_t row : {0, 1, 36}) {
      a->read_row(row, row_a);
      b->read_row(row, row_b);
      EXPECT_EQ(row_a, row_b) << dtype_name(dtype);
    }
  }
}

// In a process of its own: the device is lost to whoever makes it fail.
TEST(CudaBackendDeathTest, AFailureSurfacesAtSynchronizeWithTheOpsName) {
  if (!device_or_null()) GTEST_SKIP() << "no GPU";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail_an_op = [] {
    const auto device = make_cuda_backend();
    const auto weight = device->load_weight(RandomWeight(DType::bf16, Shape(64, 64), 1), WeightUse::matmul);
    const Tensor nowhere{reinterpret_cast<void*>(uintptr_t{256}), Shape(1, 64)};
    try {
      device->linear({.x = nowhere, .w = {weight.get()}, .out = {nowhere}});
      device->synchronize();
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(3);
    }
  };
  EXPECT_EXIT(fail_an_op(), testing::ExitedWithCode(3), "cuda: linear failed: ");
}

TEST(CudaBackend, AStepIsReplayedAndTimedOpByOpWithTheSameResult) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  ModelRun model = start(*device, with("BF16", 64, 2));
  std::vector<std::vector<int32_t>> drawn;
  for (const bool timed : {false, true}) {
    model.reset();
    device->set_timing(timed);
    for (int32_t s = 0; s < 2; ++s) model.prefill(s, prompt_of(20 + s));
    for (int step = 0; step < 5; ++step) {
      model.decode(2);
      drawn.emplace_back(model.sampled().begin(), model.sampled().end());
      if (!timed) continue;
      const StepTimes* times = device->step_times();
      ASSERT_NE(times, nullptr);
      EXPECT_FALSE(times->ops.empty());
      if (step > 2) {
        EXPECT_GT(times->replay_us, 0);
      }
    }
  }
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(drawn[i], drawn[i + 5]) << "step " << i;
}

TEST(CudaBackend, AHugeAllocationNamesNeedAndFreeMemory) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  try {
    (void)device->allocate(size_t{1} << 50);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("out of GPU memory: 1.0 PiB"), std::string::npos) << error.what();
  }
}

TEST(CudaBackend, WithoutADeviceSaysSoInOneLine) {
  if (device_or_null()) GTEST_SKIP() << "there is a GPU";
  try {
    (void)create_backend("cuda");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("needs an NVIDIA GPU"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace inferno
