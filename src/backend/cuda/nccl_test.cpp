// NCCL with one rank, which is all that one GPU can have: its calls are part of the captured step. A sum of one part is
// that part, for which NCCL enqueues nothing; logits are sent by a kernel of NCCL's, from the rank to itself.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "backend/cuda/cuda.h"
#include "backend/cuda/test_device.h"
#include "backend/step_times.h"
#include "base/error.h"
#include "comm/communicator.h"
#include "comm/nccl_library.h"
#include "comm/thread_ranks.h"
#include "synthetic/model_run.h"
#include "synthetic/synthetic_model.h"

namespace inferno {
namespace {

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    try {
      (void)make_cuda_backend();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    std::string reason;
    if (NcclLibrary::load(reason) == nullptr) GTEST_SKIP() << reason;
    ::setenv("INFERNO_NCCL", "1", 1);
  }
  void TearDown() override { ::unsetenv("INFERNO_NCCL"); }
};

TEST_F(Nccl, SumsAndLogitsOfOneRankArePartOfTheCapturedStep) {
  const SyntheticModel file(find_model_shape("tiny"), "Q8_0");
  const RunLimits limits{.context = 192, .max_sequences = 2};
  Communicator one;
  const auto with_nccl = make_cuda_backend(&one);
  const auto without = make_cuda_backend();
  with_nccl->join_ranks();
  EXPECT_NE(with_nccl->description().find("NCCL"), std::string::npos) << with_nccl->description();
  const std::vector<int32_t> begins = {0, read_config(file).vocabulary};
  ModelRun tested(*with_nccl, file, limits, {.ranks = &one, .vocabulary_begins = begins});
  ModelRun expected(*without, file, limits);
  // Sums between ranks come between products that share a norm without them, which rounds elsewhere.
  constexpr double kLimit = 2e-3;
  for (int32_t s = 0; s < 2; ++s) {
    tested.prefill(s, prompt_of(70 + s));
    expected.prefill(s, prompt_of(70 + s));
    EXPECT_LE(nmse(expected.logits(), tested.logits()), kLimit) << "prompt " << s;
  }
  for (int step = 0; step < 8; ++step) {  // from the third on a captured graph runs
    with_nccl->set_timing(step > 5);
    tested.decode(2);
    expected.decode(2);
    EXPECT_LE(nmse(expected.logits(), tested.logits()), kLimit) << "step " << step;
    if (step <= 5) continue;
    const StepTimes* times = with_nccl->step_times();
    ASSERT_NE(times, nullptr);
    EXPECT_GT(times->replay_us, 0) << "no graph";
    // After the embedding, and after attention and MLP of both layers.
    EXPECT_EQ(std::ranges::count(times->ops, OpId::all_reduce, &OpRecord::op), 5);
    EXPECT_EQ(std::ranges::count(times->ops, OpId::all_gather, &OpRecord::op), 1);
  }
}

TEST_F(Nccl, RanksThatShareADeviceAreRefusedInOneLine) {
  ThreadRanks ranks(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      try {
        make_cuda_backend(&ranks[r])->join_ranks();
      } catch (const Error& error) {
        errors[static_cast<size_t>(r)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int devices = 0;
  (void)cudaGetDeviceCount(&devices);
  if (devices > 1) GTEST_SKIP() << "each rank has a device";
  for (const std::string& error : errors) EXPECT_EQ(error, "INFERNO_NCCL=1, but ranks 0 and 1 share a GPU");
}

}  // namespace
}  // namespace inferno
