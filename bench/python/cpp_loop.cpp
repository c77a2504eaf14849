// The C++ side of python_speed.py: holds a model and, for each line "STREAMS TOKENS" on standard input, makes that many
// texts at once with the public library and prints their tokens per second. A process that stays, so that both sides
// can be measured in turns of a second each: on a shared machine the speed changes from one second to the next.
#include <inferno/inferno.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Times = std::vector<Clock::time_point>;

constexpr int kPrompt = 16;

// The same ids as in python_speed.py.
std::vector<int32_t> prompt_ids(int stream) {
  std::vector<int32_t> ids(kPrompt);
  for (int i = 0; i < kPrompt; ++i) ids[static_cast<size_t>(i)] = 1000 + 97 * stream + i;
  return ids;
}

double speed(const Times& times) {
  return static_cast<double>(times.size() - 1) / std::chrono::duration<double>(times.back() - times.front()).count();
}

// Each stream between two tokens of its own, while all of them run.
double speed_of_all(const std::vector<Times>& streams) {
  Clock::time_point begin = streams[0].front();
  Clock::time_point end = streams[0].back();
  for (const Times& times : streams) {
    begin = std::max(begin, times.front());
    end = std::min(end, times.back());
  }
  double sum = 0;
  for (const Times& times : streams) {
    Times within;
    std::copy_if(times.begin(), times.end(), std::back_inserter(within),
                 [&](Clock::time_point t) { return t >= begin && t <= end; });
    sum += speed(within);
  }
  return sum;
}

double measure(inferno::Llm& llm, int streams, int tokens) {
  inferno::GenerateOptions options;
  options.max_new_tokens = tokens;
  options.stop_at_end = false;
  std::vector<Times> times(static_cast<size_t>(streams));
  const auto note = [&](int stream) {
    return [&of_stream = times[static_cast<size_t>(stream)]](const inferno::TokenEvent&) {
      of_stream.push_back(Clock::now());
      return true;
    };
  };
  if (streams == 1) {
    llm.generate(prompt_ids(0), options, note(0));
    return speed(times[0]);
  }
  std::vector<inferno::Generation> texts;
  for (int i = 0; i < streams; ++i) texts.push_back(llm.submit(prompt_ids(i), options, note(i)));
  for (inferno::Generation& text : texts) (void)text.result();
  return speed_of_all(times);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: cpp_loop MODEL.gguf THREADS CONTEXT, then lines \"STREAMS TOKENS\" on standard input\n";
    return 2;
  }
  try {
    inferno::LoadOptions load;
    load.threads = std::atoi(argv[2]);
    load.context = std::atoi(argv[3]);
    inferno::Llm llm = inferno::Llm::load(argv[1], load);
    int streams = 0;
    int tokens = 0;
    while (std::cin >> streams >> tokens) {
      if (streams < 1 || tokens < 2) throw inferno::Error("streams and tokens: at least 1 and 2");
      std::cout << measure(llm, streams, tokens) << std::endl;
    }
  } catch (const inferno::Error& e) {
    std::cerr << "cpp_loop: " << e.what() << "\n";
    return 1;
  }
  return 0;
}
