#include "profile/profile.h"

#include <gtest/gtest.h>
#include <stdlib.h>  // setenv
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/factory.h"
#include "backend/op_image.h"
#include "base/error.h"
#include "profile/profiling_backend.h"
#include "profile/trace_writer.h"

namespace inferno {
namespace {

MachineLimits simple_limits() {
  MachineLimits limits;
  limits.threads = 2;
  limits.read = {{.working_set = 1e6, .gb_per_s = 100, .streams = 1},
                 {.working_set = 100e6, .gb_per_s = 50, .streams = 2}};
  limits.multiply = {10, 20, 40, 80};
  return limits;
}

// Removed when the program ends.
const std::filesystem::path& scratch_folder() {
  struct Folder {
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("inferno-profile-test-" + std::to_string(::getpid()));
  };
  static const Folder folder;
  return folder.path;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A step of two workers on a clock of 1000 ticks per microsecond: a linear of layer 3 (worker 1 is slow), then, in a
// second dispatch, a scale.
class TwoWorkers : public testing::Test {
 protected:
  TwoWorkers() {
    LinearArgs linear{.x = image_.tensor({1, 64})};
    linear.w[0] = image_.weight("w", DType::q8_0, Shape(10, 64), std::vector<std::byte>(680), 3);
    linear.out[0] = image_.tensor({1, 10});
    times_.workers = 2;
    times_.begin = 1'000'000;
    times_.end = 1'200'000;
    times_.ops.resize(2);
    times_.ops[0].assign(linear);
    times_.ops[1].assign(ScaleArgs{.x = linear.x, .s = 1, .out = linear.x});
    times_.dispatches = {0, 1};
    times_.times = {{1'010'000, 1'060'000, 0},
                    {1'020'000, 1'110'000, 10'000},  // linear
                    {1'150'000, 1'160'000, 0},
                    {1'151'000, 1'159'000, 0}};  // scale
  }
  OpImage image_;
  StepTimes times_;
};

TEST_F(TwoWorkers, TimesOfAnOpAreSplitIntoWorkAndWaits) {
  StepView view;
  view_step(times_, Phase::decode, view);
  Profile profile("test", simple_limits());
  profile.add_step(times_, view, *create_backend("scalar"));
  const PhaseTotals& totals = profile.phase(Phase::decode);
  EXPECT_DOUBLE_EQ(totals.step_us, 200);
  const OpTotals& linear = totals.ops[static_cast<size_t>(OpId::linear)];
  EXPECT_EQ(linear.calls, 1);
  EXPECT_DOUBLE_EQ(linear.total_us, 100);             // 1010 .. 1110
  EXPECT_DOUBLE_EQ(linear.work_us, (50 + 80) / 2.0);  // its own, without the wait in the middle
  EXPECT_DOUBLE_EQ(linear.wait_us, 100 - 65);
  EXPECT_DOUBLE_EQ(linear.wake_us, 10 / 2.0);  // worker 1 began 10 us after worker 0
  EXPECT_DOUBLE_EQ(linear.most_us, 80);
  EXPECT_DOUBLE_EQ(linear.operations, 2 * 64 * 10);
  EXPECT_DOUBLE_EQ(totals.layer_us.at(3), 110);  // scale has no weight: it belongs where linear did
  EXPECT_DOUBLE_EQ(totals.ops_us(), 110);
}

TEST_F(TwoWorkers, SharesOfTheSpeedOfLightLineAddUpToAllTheTime) {
  StepView view;
  view_step(times_, Phase::decode, view);
  view.tokens = 1;
  Profile profile("test", simple_limits());
  profile.add_step(times_, view, *create_backend("scalar"));
  const auto json = nlohmann::json::parse(profile.json());
  double sum = json["decode"]["share_of_limit"];
  for (const auto& [name, share] : json["decode"]["lost"].items()) sum += share.get<double>();
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_TRUE(
      profile.speed_of_light(Phase::decode).starts_with("decode 5000.0 tok/s = 0 % of what 100 GB/s allows; lost: "))
      << profile.speed_of_light(Phase::decode);
  EXPECT_EQ(profile.speed_of_light(Phase::prefill), "");
}

TEST_F(TwoWorkers, SpansOfTheTraceAddUpToTheTable) {
  const auto path = scratch_folder() / "trace.json";
  Profile profile("test", simple_limits());
  const auto backend = create_backend("scalar");
  TraceWriter trace(path, "cpu");
  for (int i = 0; i < 3; ++i) {
    StepView view;
    view_step(times_, Phase::decode, view);
    profile.add_step(times_, view, *backend);
    trace.add_step(times_, view);
    times_.begin += 1'000'000;
    times_.end += 1'000'000;
    for (WorkerTime& time : times_.times) {
      time.begin += 1'000'000;
      time.end += 1'000'000;
    }
  }
  trace.finish();
  const std::string text = read_file(path);
  EXPECT_EQ(check_trace(text), "");
  std::map<std::string, double> sums;
  const nlohmann::json json = nlohmann::json::parse(text);
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "op") sums[event["name"]] += event["dur"].get<double>();
    if (event["ph"] == "X" && event["cat"] == "wait") sums["waits"] += event["dur"].get<double>();
  }
  const PhaseTotals& totals = profile.phase(Phase::decode);
  EXPECT_NEAR(sums["linear"], totals.ops[static_cast<size_t>(OpId::linear)].total_us, 1e-2);
  EXPECT_NEAR(sums["scale"], totals.ops[static_cast<size_t>(OpId::scale)].total_us, 1e-2);
  EXPECT_NEAR(sums["waits"], 3 * (50 + 10 + 1), 1e-2)
      << "worker 0 for worker 1, worker 1 in the middle, and at the end";
}

TEST_F(TwoWorkers, StepsOfAClockThatBeginsAnewFollowEachOther) {
  const auto path = scratch_folder() / "device.json";
  TraceWriter trace(path, "device");
  for (int i = 0; i < 3; ++i) {
    StepView view;
    view_step(times_, Phase::decode, view);
    trace.add_step(times_, view);
  }
  trace.finish();
  const std::string text = read_file(path);
  EXPECT_EQ(check_trace(text), "");
  std::vector<double> begins;
  const nlohmann::json json = nlohmann::json::parse(text);
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "step") begins.push_back(event["ts"].get<double>());
  }
  EXPECT_EQ(begins, (std::vector<double>{0, 200, 400}));
}

TEST(TraceCheck, FindsWhatIsWrong) {
  const std::string track = R"({"ph": "M", "name": "thread_name", "pid": 1, "tid": 0, "args": {"name": "a"}})";
  const auto span = [](double ts, double dur) {
    return R"(,{"ph":"X","cat":"c","name":"n","pid":1,"tid":0,"ts":)" + std::to_string(ts) +
           ",\"dur\":" + std::to_string(dur) + "}";
  };
  const auto trace = [&](const std::string& events) { return "{\"traceEvents\": [" + events + "]}"; };
  EXPECT_EQ(check_trace(trace(track + span(0, 10) + span(2, 3) + span(10, 1))), "");
  EXPECT_NE(check_trace(trace(track + span(0, 10) + span(5, 10))), "") << "partly overlapping";
  EXPECT_NE(check_trace(trace(track + span(-1, 10))), "") << "before the beginning";
  EXPECT_NE(check_trace(trace(span(0, 1).substr(1))), "") << "a track without a name";
  EXPECT_NE(check_trace(trace(track)), "") << "no spans";
  EXPECT_NE(check_trace("{"), "") << "no JSON";
}

TEST(TraceWriter, AnUnwritablePathIsAnErrorAtOnce) {
  EXPECT_THROW(TraceWriter("/no/such/folder/trace.json", "cpu"), Error);
}

TEST(MachineLimits, BandwidthLiesBetweenTheMeasuredSizes) {
  const MachineLimits limits = simple_limits();
  EXPECT_DOUBLE_EQ(limits.read_gb_per_s(10), 100);
  EXPECT_DOUBLE_EQ(limits.read_gb_per_s(1e6), 100);
  EXPECT_DOUBLE_EQ(limits.read_gb_per_s(10e6), 75);
  EXPECT_DOUBLE_EQ(limits.read_gb_per_s(1e12), 50);
  // 1 MB at 100 GB/s are 10 us; 10^7 int8 operations at 80 GOP/s are 125 us.
  EXPECT_DOUBLE_EQ(limits.least_us({.weight_bytes = 1e6, .multiply = Multiply::int8}, 1e6), 10);
  EXPECT_DOUBLE_EQ(limits.least_us({.weight_bytes = 1e6, .operations = 1e7, .multiply = Multiply::int8}, 1e6), 125);
}

TEST_F(TwoWorkers, ARunFasterThanItsLimitShowsIt) {
  StepView view;
  view_step(times_, Phase::decode, view);
  MachineLimits limits = simple_limits();
  Profile slow_enough("test", limits);
  slow_enough.add_step(times_, view, *create_backend("scalar"));
  EXPECT_LT(slow_enough.most_of_limit(), 1);
  for (ReadBandwidth& read : limits.read) read.gb_per_s = 1e-3;  // 1216 bytes of a linear take a second and more
  Profile too_fast("test", limits);
  too_fast.add_step(times_, view, *create_backend("scalar"));
  EXPECT_GT(too_fast.most_of_limit(), 1);
}

TEST(MachineLimits, OfTwoMeasurementsTheBestOfEachFigureCounts) {
  MachineLimits a = simple_limits();
  MachineLimits b = simple_limits();
  a.read[0].gb_per_s = 120;
  b.read[1].gb_per_s = 60;
  b.multiply[2] = 45;
  a.disturbed = true;
  const MachineLimits best = better_of(a, b);
  EXPECT_EQ(best.read[0].gb_per_s, 120);
  EXPECT_EQ(best.read[1].gb_per_s, 60);
  EXPECT_EQ(best.multiply[2], 45);
  EXPECT_EQ(best.multiply[3], 80);
  EXPECT_EQ(best.measurements, 2);
  EXPECT_FALSE(best.disturbed) << "one of them was quiet";
}

TEST(MachineLimits, AreMeasuredOnceAndKeptInTheCacheFolder) {
  const auto folder = scratch_folder() / "cache";
  ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  const MachineLimits measured = machine_limits(1);
  ASSERT_EQ(machine_limits_file(), folder / "inferno" / "limits.json");
  ASSERT_TRUE(std::filesystem::exists(machine_limits_file()));
  for (const ReadBandwidth& read : measured.read) EXPECT_GT(read.gb_per_s, 0);
  for (const double peak : measured.multiply) EXPECT_GT(peak, 0);
  EXPECT_EQ(measured.cpu, cpu_name());
}

// A measurement with the test's results.
MachineLimits next_measurement;
MachineLimits take_next_measurement(int threads) {
  MachineLimits limits = next_measurement;
  limits.cpu = cpu_name();
  limits.isa = cpu_isa();
  limits.threads = threads;
  return limits;
}

TEST(MachineLimits, ABadMeasurementDoesNotStay) {
  ::setenv("XDG_CACHE_HOME", (scratch_folder() / "busy").c_str(), 1);
  const auto int8_limit = [](double measured, bool disturbed, Remeasure again = Remeasure::when_needed) {
    next_measurement = simple_limits();
    next_measurement.multiply[3] = measured;
    next_measurement.disturbed = disturbed;
    return machine_limits(2, again, take_next_measurement).multiply[3];
  };
  EXPECT_EQ(int8_limit(30, true), 30);
  EXPECT_EQ(int8_limit(80, true), 80) << "measured while others ran: once more";
  EXPECT_EQ(int8_limit(70, false), 80) << "the best counts";
  EXPECT_EQ(int8_limit(90, false), 80) << "a quiet measurement was among them: kept";
  EXPECT_EQ(int8_limit(90, false, Remeasure::keep_best), 90) << "a run was faster";
  EXPECT_EQ(int8_limit(60, false, Remeasure::afresh), 60) << "what was kept is forgotten";
  next_measurement = simple_limits();
  EXPECT_EQ(machine_limits(1, Remeasure::when_needed, take_next_measurement).multiply[3], 80) << "other threads";

  nlohmann::json json = nlohmann::json::parse(read_file(machine_limits_file()));
  for (auto& entry : json["limits"]) entry["isa"] = "another";
  std::ofstream(machine_limits_file()) << json;
  EXPECT_EQ(int8_limit(50, false), 50) << "of another CPU: not used";
}

TEST(MachineLimits, AMachineThatIsNeverQuietIsNotMeasuredForEver) {
  ::setenv("XDG_CACHE_HOME", (scratch_folder() / "never-quiet").c_str(), 1);
  int measurements = 0;
  for (int i = 0; i < 20; ++i) {
    next_measurement = simple_limits();
    next_measurement.disturbed = true;
    measurements = machine_limits(2, Remeasure::when_needed, take_next_measurement).measurements;
  }
  EXPECT_GT(measurements, 1);
  EXPECT_LT(measurements, 10);
}

// Opening one for reading would wait for a writer, for writing for a reader.
TEST(MachineLimits, APipeInPlaceOfTheFileIsNeitherReadNorWritten) {
  const auto folder = scratch_folder() / "pipe";
  std::filesystem::create_directories(folder / "inferno");
  ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  ASSERT_EQ(::mkfifo(machine_limits_file().c_str(), 0600), 0);
  next_measurement = simple_limits();
  EXPECT_EQ(machine_limits(1, Remeasure::when_needed, take_next_measurement).multiply[3], next_measurement.multiply[3]);
}

TEST(ProfilingBackend, TimesOfRealOpsFillTheirSteps) {
  for (const std::string_view name : {"scalar", "parallel"}) {
    const auto path = scratch_folder() / "real.json";
    Profile profile(std::string(name), simple_limits());
    TraceWriter trace(path, std::string(name));
    ProfilingBackend backend(create_backend(name), &profile, &trace);
    std::vector<float> x(1 << 20, 1.0F);
    const Tensor t{x.data(), Shape(1024, 1024), DType::f32};
    for (int step = 0; step < 5; ++step) {
      backend.begin_step(StepMode::run);
      for (int i = 0; i < 10; ++i) backend.scale({.x = t, .s = 1.5F, .out = t});
      backend.end_step();
    }
    trace.finish();
    const PhaseTotals& totals = profile.phase(Phase::decode);
    EXPECT_EQ(totals.steps, 5);
    EXPECT_EQ(totals.ops[static_cast<size_t>(OpId::scale)].calls, 50);
    EXPECT_LE(totals.ops_us(), totals.step_us);
    EXPECT_EQ(check_trace(read_file(path)), "") << name;
  }
}

TEST(CpuName, ArmCoresHaveTheNamesPeopleKnow) {
  EXPECT_EQ(cpu_name_in("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n\nprocessor\t: 1\n"),
            "Arm Neoverse V1");
  EXPECT_EQ(cpu_name_in("CPU implementer : 0x99\nCPU part : 0x001\n"), "implementer 0x99 part 0x001");
  EXPECT_EQ(cpu_name_in("model name : Intel(R) Xeon(R)\n\nmodel name : other\n"), "Intel(R) Xeon(R)");
  EXPECT_EQ(cpu_name_in(""), "unknown");
}

}  // namespace
}  // namespace inferno
