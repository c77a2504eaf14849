#include "cli/environment.h"

namespace inferno::cli {

std::span<const EnvironmentVariable> environment_variables() {
  static constexpr EnvironmentVariable kVariables[] = {
      {"HF_ENDPOINT", "The hub that models are pulled from; https://huggingface.co when not set."},
      {"HF_HUB_OFFLINE", "Set to anything but 0: nothing is fetched, as with --offline."},
      {"HF_TOKEN", "A token for models that need one. Sent to the hub alone, never where it redirects to."},
      {"HOME", "Where .cache and .local/state are, when the XDG variables are not set."},
      {"INFERNO_API_KEY", "A key that requests to inferno serve must have."},
      {"INFERNO_CUDA_MEMORY", "MiB of the GPU's memory that may be used; the GPU appears smaller."},
      {"INFERNO_CUDA_SYNC", "Set: the GPU is waited for after every op, so that an error names its own."},
      {"INFERNO_DEVICE_CHECK", "0: kernels that this system compiled for its GPU are trusted unseen."},
      {"INFERNO_ISA", "The instruction set to use instead of the best one; inferno machine lists them."},
      {"INFERNO_LOG", "What is logged: off, error, warn, info, debug, trace."},
      {"INFERNO_METAL_MEMORY", "MiB that the Metal backend may use; the GPU appears smaller."},
      {"INFERNO_METAL_MIN_ROWS",
       "Rows of activations from which a product that is placed on Metal goes there; 32 when not set."},
      {"INFERNO_MODELS", "The folder of pulled models; inferno/models in the cache folder when not set."},
      {"INFERNO_NCCL", "0: ranks with GPUs exchange through host memory; 1: an error where NCCL cannot be used."},
      {"INFERNO_RANK_TIMEOUT", "Seconds after which a rank that is silent in a step counts as gone; 60 when not set."},
      {"INFERNO_THREADS", "CPU threads, when --threads is not given."},
      {"NO_COLOR", "Set: no colours on the terminal."},
      {"OMPI_COMM_WORLD_RANK", "Set by mpirun, with OMPI_COMM_WORLD_SIZE: this program is one rank of several."},
      {"OMP_NUM_THREADS", "CPU threads, when neither --threads nor INFERNO_THREADS is given."},
      {"TERM", "dumb: inferno chat writes no escape sequences."},
      {"XDG_CACHE_HOME", "The cache folder; ~/.cache when not set. Pulled models and the machine's limits are there."},
      {"XDG_STATE_HOME", "What was typed in inferno chat is kept there; ~/.local/state when not set."},
  };
  return kVariables;
}

}  // namespace inferno::cli
