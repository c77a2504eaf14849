// What the judges' tests share: data, and comparison with results computed in double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "emulator.h"

namespace judges {

inline std::vector<float> random_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-1.0F, 1.0F);
  std::vector<float> values(count);
  for (float& v : values) v = value(random);
  return values;
}

// The largest difference, of the largest value there is, is below `limit`. The difference is printed, for the docs.
inline void expect_close(const std::string& kernel, const std::vector<float>& got, const std::vector<double>& want,
                         double limit) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0.0;
  double difference = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << kernel << ": value " << i << " is " << got[i];
    largest = std::max(largest, std::fabs(want[i]));
    difference = std::max(difference, std::fabs(static_cast<double>(got[i]) - want[i]));
  }
  EXPECT_LE(difference, limit * largest) << kernel << ", of a largest value of " << largest;
  std::printf("%-50s %6zu values, largest difference %.1e of %.3g\n", kernel.c_str(), want.size(), difference, largest);
}

// Runs `judge` for each order of threads, which changes nothing.
template <typename Judge>
void in_every_order(Judge judge) {
  for (const emulator::Order order : {emulator::Order::forward, emulator::Order::reverse, emulator::Order::shuffled}) {
    judge(order);
  }
}

template <typename T>
void* buffer_of(const T& what) {
  return const_cast<T*>(&what);
}
template <typename T>
void* buffer_of(const std::vector<T>& what) {
  return const_cast<T*>(what.data());
}

// Attention of query `q` (width) over keys [count, width] and values [count, width], count >= 1.
struct AttentionCase {
  double scale = 1.0;
  double softcap = 0.0;  // 0: none
  bool has_sink = false;
  double sink = 0.0;
};
template <typename T>
std::vector<double> attend(const AttentionCase& c, const T* q, const T* keys, const T* values, size_t count,
                           size_t width) {
  std::vector<double> scores(count);
  double most = c.has_sink ? c.sink : -INFINITY;
  for (size_t k = 0; k < count; ++k) {
    double score = 0.0;
    for (size_t i = 0; i < width; ++i) score += static_cast<double>(q[i]) * static_cast<double>(keys[k * width + i]);
    score *= c.scale;
    if (c.softcap > 0.0) score = c.softcap * std::tanh(score / c.softcap);
    scores[k] = score;
    most = std::max(most, score);
  }
  double sum = c.has_sink ? std::exp(c.sink - most) : 0.0;
  std::vector<double> out(width);
  for (size_t k = 0; k < count; ++k) {
    const double weight = std::exp(scores[k] - most);
    sum += weight;
    for (size_t i = 0; i < width; ++i) out[i] += weight * static_cast<double>(values[k * width + i]);
  }
  for (double& value : out) value /= sum;
  return out;
}

}  // namespace judges
