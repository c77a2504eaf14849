#include "comm/world.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace inferno {
namespace {

std::map<std::string, std::string> variables;

const char* variable(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

Launch launch_of(std::map<std::string, std::string> environment) {
  variables = std::move(environment);
  return detect_launch(variable);
}

TEST(World, WithoutALauncherThereIsOneRank) {
  EXPECT_EQ(launch_of({}).size, 1);
  EXPECT_EQ(launch_of({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}).size, 1);
}

TEST(World, ALaunchersVariablesSayWhoThisIs) {
  const Launch open_mpi =
      launch_of({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(open_mpi.size, 4);
  EXPECT_EQ(open_mpi.rank, 3);
  EXPECT_EQ(open_mpi.local_size, 2);
  const Launch hydra = launch_of({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}});
  EXPECT_EQ(hydra.size, 2);
  EXPECT_EQ(hydra.rank, 1);
}

TEST(World, VariablesThatMakeNoSenseAreNoLauncher) {
  for (const char* rank : {"-1", "2", "x", "", "99999999999999999999"}) {
    EXPECT_EQ(launch_of({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", rank}}).size, 1) << rank;
  }
  EXPECT_EQ(launch_of({{"OMPI_COMM_WORLD_SIZE", "2"}}).size, 1);
}

TEST(World, BeforeJoiningThereIsOneRankThatNeverFails) {
  EXPECT_EQ(world().size(), 1);
  EXPECT_FALSE(world().failed());
  char text[64];
  EXPECT_EQ(describe_dead_rank(text, sizeof text), 0U);
}

}  // namespace
}  // namespace inferno
