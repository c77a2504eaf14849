// Ops carried out by the Metal kernels in the emulator: which kernels an op is made of, and their grids.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "backend/metal/weight_planes.h"
#include "backend/op_args.h"
#include "backend/op_image.h"
#include "emulator.h"

namespace inferno::test {

class EmulatedOps {
 public:
  explicit EmulatedOps(emulator::Order order) : order_(order) {}

  // Runs the only op of the image in the image's memory. False where there are no kernels for it.
  bool run(const OpImage& image);

 private:
  // A weight in its planes, or a vector as f32.
  struct Planes {
    metal::PlaneLayout layout;
    std::vector<std::byte> bytes;
  };
  Planes planes_of(const Weight& weight) const;
  float* vector_of(const Weight* weight);  // null for null
  float* temporary(int64_t count);         // NaN, exactly as long as asked for

  void dispatch(const std::string& kernel, emulator::Size groups, emulator::Size threads,
                const std::vector<const void*>& buffers) const;
  // One row of `cols` of x and out.
  void norm(const float* x, const Weight* weight, int64_t rows, int64_t cols, float eps, float* out);
  // The rows of x, normed where there is a norm.
  const float* input_of(const Tensor& x, const Weight* norm_weight, float eps);
  void activate(Activation activation, const float* x, const float* factor, int64_t count, float* out) const;
  void finish(const float* x, const float* residual, float scale, float softcap, int64_t count, float* out) const;
  void multiply(const Weight& weight, const float* x, int64_t tokens, const Weight* bias, const float* residual,
                const Tensor& rows, float* out);
  // multiply, then what a linear adds: norm, scale and residual.
  void project(const Weight& weight, const float* x, int64_t tokens, const Weight* bias, const Weight* post_norm,
               float eps, float residual_scale, const Tensor& residual, const Tensor& rows, float* out);
  void rope_store(const metal::RopeStoreArgs& args, DType type, int64_t tokens,
                  const std::vector<const void*>& buffers) const;

  bool op(const EmbedArgs& a);
  bool op(const RmsNormArgs& a);
  bool op(const ActivateArgs& a);
  bool op(const LinearArgs& a);
  bool op(const KvStoreArgs& a);
  bool op(const QkvRopeStoreArgs& a);
  bool op(const AttentionArgs& a);
  bool op(const GatedMlpArgs& a);
  bool op(const LogitsArgs& a);
  template <typename Args>
  bool op(const Args& /*a*/) {
    return false;
  }

  emulator::Order order_;
  std::vector<std::unique_ptr<float[]>> temporaries_;
};

}  // namespace inferno::test
