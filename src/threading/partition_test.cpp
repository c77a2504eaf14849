#include "threading/partition.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "threading/thread_pool.h"

namespace inferno {
namespace {

TEST(Slice, CoversEveryElementOnceInOrderWithBoundariesOnTheStep) {
  for (const int64_t count : {0, 1, 2, 15, 16, 17, 63, 64, 65, 896, 4864, 9728, 151936}) {
    for (const int nth : {1, 2, 3, 4, 7, 16, 64}) {
      for (const int64_t step : {1, 4, 8, 16, 24}) {
        int64_t at = 0;
        int64_t least = count;
        int64_t most = 0;
        for (int ith = 0; ith < nth; ++ith) {
          const Range part = slice(count, ith, nth, step);
          ASSERT_EQ(part.begin, at) << count << " " << ith << "/" << nth << " step " << step;
          ASSERT_LE(part.begin, part.end);
          ASSERT_TRUE(part.end % step == 0 || part.end == count);
          at = part.end;
          if (part.end != count) least = std::min(least, part.size());
          most = std::max(most, part.size());
        }
        ASSERT_EQ(at, count);
        ASSERT_LE(most, least + step);
      }
    }
  }
}

TEST(CacheLineStep, IsAMultipleOfTheKernelStepAndEndsOnALine) {
  EXPECT_EQ(cache_line_step(1, 4), 16);
  EXPECT_EQ(cache_line_step(8, 4), 16);
  EXPECT_EQ(cache_line_step(24, 4), 48);
  EXPECT_EQ(cache_line_step(4, 2), 32);
  EXPECT_EQ(cache_line_step(1, 1), 64);
  EXPECT_EQ(cache_line_step(5, 64), 5);
  EXPECT_EQ(cache_line_step(3, 128), 3);
  for (const int64_t step : {1, 3, 4, 6, 8, 32}) {
    for (const int64_t bytes : {1, 2, 4, 8, 12, 34, 64, 144}) {
      const int64_t line_step = cache_line_step(step, bytes);
      EXPECT_EQ(line_step % step, 0);
      EXPECT_EQ(line_step * bytes % static_cast<int64_t>(kCacheLine), 0);
    }
  }
}

TEST(SharedChunks, OneThreadOfManyProcessesEverythingOnceStartingWithItsOwnSlice) {
  for (const int64_t count : {0, 1, 5, 100, 9728, 151936}) {
    for (const int nth : {1, 2, 3, 16}) {
      for (const int64_t step : {1, 8, 16}) {
        std::vector<ChunkCounts> counts(static_cast<size_t>(nth));
        const int ith = nth / 2;
        std::vector<int> touched(static_cast<size_t>(count));
        int chunks = 0;
        const Piece all{count, step};
        for_shared_chunks(counts.data(), 1, {&all, 1}, ith, nth, step, [&](size_t /*piece*/, Range part) {
          ASSERT_EQ(part.begin % step, 0);
          const Range own = slice(count, ith, nth, step);
          if (chunks++ == 0 && own.begin < own.end) {
            ASSERT_EQ(part.begin, own.begin);
          }
          for (int64_t i = part.begin; i < part.end; ++i) ++touched[static_cast<size_t>(i)];
        });
        for (const int times : touched) ASSERT_EQ(times, 1);
        ASSERT_LE(chunks, kChunksPerSlice * nth + count / kLongestRest);
        if (count >= 100 * step * nth) {
          ASSERT_GE(chunks, 4 * nth);
        }
        for_shared_chunks(counts.data(), 1, {&all, 1}, 0, nth, step,
                          [](size_t, Range) { FAIL() << "nothing is left"; });
      }
    }
  }
}

TEST(SharedChunks, AreNotSmallerThanTheLeastSize) {
  std::vector<ChunkCounts> counts(2);
  const Piece all{100, 4};
  for_shared_chunks(counts.data(), 0, {&all, 1}, 0, 2, 20, [](size_t /*piece*/, Range part) {
    EXPECT_TRUE(part.size() >= 20 || part.end == 100 || part.end == 52) << part.begin << " " << part.end;
  });
}

TEST(SharedChunks, OfLongSlicesEndShort) {
  std::vector<ChunkCounts> counts(2);
  const Piece all{100'000, 8};
  for_shared_chunks(counts.data(), 0, {&all, 1}, 0, 2, 1, [](size_t /*piece*/, Range part) {
    EXPECT_TRUE(part.size() <= kLongestRest || part.begin % 50'000 == 0) << part.begin << " " << part.end;
  });
}

TEST(SharedChunks, OfSeveralPiecesAreClaimedFromOwnSlicesOfAllPiecesBeforeStealing) {
  constexpr int kThreads = 4;
  constexpr int kThread = 2;
  std::vector<ChunkCounts> counts(kThreads);
  constexpr std::array<Piece, 3> kPieces = {{{2048, 16}, {1024, 16}, {100, 1}}};
  std::array<std::vector<int>, 3> touched;
  for (size_t p = 0; p < 3; ++p) touched[p].resize(static_cast<size_t>(kPieces[p].count));
  bool others = false;
  for_shared_chunks(counts.data(), 1, kPieces, kThread, kThreads, 1, [&](size_t p, Range part) {
    const Range own = slice(kPieces[p].count, kThread, kThreads, kPieces[p].step);
    const bool mine = own.begin <= part.begin && part.end <= own.end;
    EXPECT_FALSE(mine && others);
    others = others || !mine;
    for (int64_t i = part.begin; i < part.end; ++i) ++touched[p][static_cast<size_t>(i)];
  });
  for (const std::vector<int>& piece : touched) {
    for (const int times : piece) ASSERT_EQ(times, 1);
  }
}

TEST(SharedChunks, OfManyThreadsAreDisjointAndAll) {
  struct Context {
    std::vector<ChunkCounts> counts = std::vector<ChunkCounts>(4);
    std::vector<int> touched;
  } context;
  constexpr int64_t kCount = 100'000;
  context.touched.resize(kCount);
  ThreadPool pool({.threads = 4, .allow_oversubscription = true});
  pool.dispatch(
      [](int ith, int nth, void* pointer) {
        auto& [counts, touched] = *static_cast<Context*>(pointer);
        const Piece all{kCount, 8};
        for_shared_chunks(counts.data(), 0, {&all, 1}, ith, nth, 8, [&](size_t /*piece*/, Range part) {
          for (int64_t i = part.begin; i < part.end; ++i) ++touched[static_cast<size_t>(i)];
        });
      },
      &context);
  for (const int count : context.touched) ASSERT_EQ(count, 1);
}

TEST(CountCompleted, EachUnitIsUsedOnceByAThreadThatSeesAllOfIt) {
  struct Context {
    std::vector<ChunkCounts> counts = std::vector<ChunkCounts>(4);
    std::vector<int> results;
    std::vector<int> sums;
  } context;
  static constexpr int64_t kCount = 777;
  static constexpr int64_t kUnit = 100;  // the last one is shorter; two units per thread
  context.results.resize(kCount);
  context.sums.resize(8);
  ThreadPool pool({.threads = 4, .allow_oversubscription = true});
  pool.dispatch(
      [](int ith, int nth, void* pointer) {
        auto& [counts, results, sums] = *static_cast<Context*>(pointer);
        const auto columns = [](int64_t unit) { return Range{unit * kUnit, std::min((unit + 1) * kUnit, kCount)}; };
        const Piece all{kCount, 8};
        for_shared_chunks(counts.data(), 0, {&all, 1}, ith, nth, 8, [&](size_t /*piece*/, Range part) {
          for (int64_t i = part.begin; i < part.end; ++i) results[static_cast<size_t>(i)] = 1;
          count_completed(
              counts.data(), 6, nth, part, kUnit, [&](int64_t unit) { return columns(unit).size(); },
              [&](int64_t unit) {
                const Range whole = columns(unit);
                for (int64_t i = whole.begin; i < whole.end; ++i) {
                  sums[static_cast<size_t>(unit)] += results[static_cast<size_t>(i)];
                }
              });
        });
      },
      &context);
  EXPECT_EQ(context.sums, (std::vector<int>{100, 100, 100, 100, 100, 100, 100, 77}));
}

}  // namespace
}  // namespace inferno
