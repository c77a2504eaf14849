#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "comm/rank_failure.h"
#include "comm/thread_ranks.h"

namespace inferno {
namespace {

// Runs f(communicator) on every rank, each on a thread of its own.
void on_all(ThreadRanks& ranks, const std::function<void(Communicator&)>& f) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks.size(); ++r) threads.emplace_back([&, r] { f(ranks[r]); });
  for (std::thread& thread : threads) thread.join();
}

float part_of(int rank, size_t i) {
  return std::sin(static_cast<float>(i) * 0.37F + static_cast<float>(rank)) *
         std::pow(10.0F, static_cast<float>(i % 7));
}

std::vector<float> parts(int rank, size_t count) {
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i) x[i] = part_of(rank, i);
  return x;
}

std::vector<float> sum_on(Communicator& comm, size_t count, Wire wire = Wire::f32) {
  std::vector<float> x = parts(comm.rank(), count);
  std::vector<std::byte> scratch(Communicator::all_reduce_bytes(count, comm.size()));
  comm.all_reduce(x, scratch, wire);
  return x;
}

TEST(Communicator, OneRankIsFree) {
  Communicator alone;
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(Communicator::all_reduce_bytes(1000, 1), 0U);
  EXPECT_EQ(sum_on(alone, 5), parts(0, 5));
  std::byte mine{7};
  std::byte all{};
  alone.all_gather({&mine, 1}, {&all, 1});
  EXPECT_EQ(all, mine);
  alone.barrier();
  EXPECT_NO_THROW(alone.check());
}

// Few elements go whole, many in segments: the order of the additions is the same.
TEST(Communicator, SumsAddInRankOrderOnEveryRank) {
  for (const int size : {2, 3, 4, 7}) {
    for (const size_t count : {size_t{1}, size_t{5}, size_t{1000}, size_t{40'003}}) {
      std::vector<float> expected = parts(0, count);
      for (int r = 1; r < size; ++r) {
        for (size_t i = 0; i < count; ++i) expected[i] += part_of(r, i);
      }
      ThreadRanks ranks(size);
      on_all(ranks, [&](Communicator& comm) {
        const std::vector<float> sum = sum_on(comm, count);
        EXPECT_EQ(std::memcmp(sum.data(), expected.data(), count * sizeof(float)), 0) << size << " ranks, " << count;
      });
    }
  }
}

// Memory is made once, for the longest sum of a step: a shorter one, which goes whole, must not need more.
TEST(Communicator, ShorterSumsNeedNoMoreMemory) {
  for (const int size : {2, 3, 8, 64}) {
    size_t before = 0;
    for (size_t count = Communicator::kLeastSegmented / 2; count < 8 * Communicator::kLeastSegmented; count += 999) {
      EXPECT_GE(Communicator::all_reduce_bytes(count, size), before) << size << " ranks, " << count;
      before = Communicator::all_reduce_bytes(count, size);
    }
  }
}

// Each part is rounded, what is added up is not, whether it goes whole or in segments.
TEST(Communicator, RoundedSumsAddRoundedPartsInRankOrderOnEveryRank) {
  const auto rounded = [](float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    return std::bit_cast<float>((bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U);
  };
  for (const int size : {2, 3, 5}) {
    for (const size_t count : {size_t{7}, size_t{1000}, size_t{40'003}}) {
      std::vector<float> expected(count);
      for (size_t i = 0; i < count; ++i) {
        expected[i] = rounded(part_of(0, i));
        for (int r = 1; r < size; ++r) expected[i] += rounded(part_of(r, i));
      }
      ThreadRanks ranks(size);
      on_all(ranks, [&](Communicator& comm) {
        EXPECT_EQ(sum_on(comm, count, Wire::bf16), expected) << size << " ranks, " << count;
      });
    }
  }
}

TEST(Communicator, GathersInRankOrderAndBroadcastsFromTheLeader) {
  ThreadRanks ranks(4);
  on_all(ranks, [](Communicator& comm) {
    const int32_t mine[2] = {comm.rank(), 10 * comm.rank()};
    int32_t all[8] = {};
    comm.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(all[2 * r], r);
      EXPECT_EQ(all[2 * r + 1], 10 * r);
    }
    // Parts of different sizes, to the leader alone.
    std::vector<std::byte> part(static_cast<size_t>(comm.rank() + 1), static_cast<std::byte>(comm.rank()));
    std::vector<std::byte> whole(10);
    comm.gather(part, comm.size(), [&](int r) {
      const auto rank = static_cast<size_t>(r);
      return std::span(whole).subspan(rank * (rank + 1) / 2, rank + 1);
    });
    if (comm.is_leader()) {
      for (const auto& [at, rank] : {std::pair{1, 1}, {2, 1}, {3, 2}, {5, 2}, {6, 3}, {9, 3}}) {
        EXPECT_EQ(static_cast<int>(whole[static_cast<size_t>(at)]), rank) << at;
      }
    }
    int32_t word = comm.is_leader() ? 42 : 0;
    comm.broadcast(std::as_writable_bytes(std::span(&word, 1)), Patience::idle);
    EXPECT_EQ(word, 42);
    comm.barrier();
    EXPECT_FALSE(comm.failed());
  });
}

TEST(Communicator, ARankThatEndsIsNamedAndNothingHangs) {
  ThreadRanks ranks(3);
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ranks.kill(1);
  });
  std::vector<std::thread> threads;
  for (const int r : {0, 2}) {
    threads.emplace_back([&ranks, r] {
      Communicator& comm = ranks[r];
      (void)sum_on(comm, 100);
      EXPECT_TRUE(comm.failed());
      EXPECT_NE(comm.failure().find("rank 1"), std::string::npos) << comm.failure();
      EXPECT_THROW(comm.check(), RankFailure);
      // From then on everything returns at once.
      comm.barrier();
      (void)sum_on(comm, 100'000);
    });
  }
  for (std::thread& thread : threads) thread.join();
  killer.join();
}

TEST(Communicator, WhoGivesUpExchangesNothingMoreAndSaysWhy) {
  ThreadRanks ranks(2);
  ranks[1].give_up("the GPU is gone");
  EXPECT_EQ(ranks[1].failure(), "the GPU is gone");
  EXPECT_THROW(ranks[1].check(), RankFailure);
  const std::vector<float> x = sum_on(ranks[1], 100);
  EXPECT_EQ(x, parts(1, 100));
  ranks[1].give_up("another reason");
  EXPECT_EQ(ranks[1].failure(), "the GPU is gone");
}

TEST(Communicator, RanksOfOneMachineAreCounted) {
  ThreadRanks ranks(3);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(ranks[r].transport()->local().rank, r);
    EXPECT_EQ(ranks[r].transport()->local().size, 3);
  }
}

}  // namespace
}  // namespace inferno
