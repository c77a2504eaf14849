// What a file says about layers of Mamba-2.
#include "base/error.h"
#include "model/config.h"

namespace inferno {
namespace {

// Sizes of states are products of these.
constexpr uint64_t kMaxHeads = 4096;
constexpr uint64_t kMaxStateSize = 1024;
constexpr int32_t kMaxHeadDim = 1024;

}  // namespace

RecurrentConfig read_mamba2(const ConfigKeys& keys) {
  const std::string& path = keys.file().path();
  RecurrentConfig r;
  r.conv_taps = keys.size("ssm.conv_kernel", kMaxConvTaps);
  r.k_heads = keys.size("ssm.group_count", kMaxHeads);
  r.v_heads = keys.size("ssm.time_step_rank", kMaxHeads);
  r.state_size = keys.size("ssm.state_size", kMaxStateSize);
  const int32_t inner = keys.size("ssm.inner_size");
  if (r.conv_taps < 2) fail("\"{}\": {} is {}, must be 2 or more", path, keys.key("ssm.conv_kernel"), r.conv_taps);
  if (r.v_heads % r.k_heads != 0) {
    fail("\"{}\": {} heads do not divide into {} groups ({}, {})", path, r.v_heads, r.k_heads,
         keys.key("ssm.time_step_rank"), keys.key("ssm.group_count"));
  }
  r.head_dim = inner / r.v_heads;
  if (inner % r.v_heads != 0 || r.head_dim % 4 != 0 || r.head_dim > kMaxHeadDim) {
    fail("\"{}\": {} is {}, must be {} heads of 4, 8, 12 ... {} elements", path, keys.key("ssm.inner_size"), inner,
         r.v_heads, kMaxHeadDim);
  }
  r.conv_channels = inner + 2 * r.k_heads * r.state_size;
  r.conv_bias = true;
  return r;
}

}  // namespace inferno
