#include "primitive_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <type_traits>

#include "quant/quant.h"

namespace inferno::test {
namespace {

double at(const Tensor& t, int64_t r, int64_t c) {
  return t.f32()[r * t.cols() + c];
}

// out[r][c] = f(r, c)
template <typename F>
void fill(const Tensor& out, F f) {
  std::vector<float> values(static_cast<size_t>(out.elements()));
  for (int64_t r = 0; r < out.rows(); ++r) {
    for (int64_t c = 0; c < out.cols(); ++c)
      values[static_cast<size_t>(r * out.cols() + c)] = static_cast<float>(f(r, c));
  }
  std::copy(values.begin(), values.end(), out.f32());
}

double broadcast(const Tensor& b, const Tensor& like, int64_t r, int64_t c) {
  return b.elements() == like.elements() ? at(b, r, c) : b.f32()[c];
}

std::vector<float> weight_row(const Weight& w, int64_t row) {
  std::vector<std::byte> canonical(static_cast<size_t>(row_bytes(w.dtype(), w.cols())));
  w.read_row(row, canonical);
  std::vector<float> values(static_cast<size_t>(w.cols()));
  dequantize_row(w.dtype(), canonical.data(), values.data(), w.cols());
  return values;
}

void rotate(float* head, const RopeParams& rope, int64_t position) {
  const int64_t pairs = rope.rotated_dims / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    const float* pair = rope.table.f32() + (position * pairs + i) * 2;
    const bool half = rope.pairing == RopePairing::half_split;
    float& x = head[half ? i : 2 * i];
    float& y = head[half ? i + pairs : 2 * i + 1];
    const double a = x;
    const double b = y;
    x = static_cast<float>(a * pair[0] - b * pair[1]);
    y = static_cast<float>(a * pair[1] + b * pair[0]);
  }
}

void run(const AddArgs& a) {
  fill(a.out, [&](int64_t r, int64_t c) { return at(a.a, r, c) + broadcast(a.b, a.a, r, c); });
}
void run(const HadamardArgs& a) {
  fill(a.out, [&](int64_t r, int64_t c) { return at(a.a, r, c) * broadcast(a.b, a.a, r, c); });
}
void run(const SiluArgs& a) {
  fill(a.out, [&](int64_t r, int64_t c) { return at(a.x, r, c) / (1 + std::exp(-at(a.x, r, c))); });
}
double activation(Activation f, double x) {
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  switch (f) {
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::relu_squared:
      return x > 0 ? x * x : 0;
    case Activation::clamped_silu:
      return std::min(x, 7.0) * sigmoid(1.702 * std::min(x, 7.0));
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::softplus:
      return std::log1p(std::exp(x));
  }
  return 0;
}
void run(const ActivateArgs& a) {
  fill(a.out, [&](int64_t r, int64_t c) {
    double factor = a.factor.empty() ? 1 : at(a.factor, r, c);
    if (a.activation == Activation::clamped_silu && !a.factor.empty()) factor = std::clamp(factor, -7.0, 7.0) + 1;
    return activation(a.activation, at(a.x, r, c)) * factor;
  });
}
void run(const SoftCapArgs& a) {
  fill(a.out, [&](int64_t r, int64_t c) { return a.cap * std::tanh(at(a.x, r, c) / a.cap); });
}
void run(const ScaleArgs& a) {
  fill(a.out, [&](int64_t r, int64_t c) { return at(a.x, r, c) * a.s; });
}
void run(const AddScalarArgs& a) {
  fill(a.out, [&](int64_t r, int64_t c) { return at(a.x, r, c) + a.s; });
}
void run(const RsqrtElemArgs& a) {
  fill(a.out, [&](int64_t r, int64_t c) { return 1 / std::sqrt(at(a.x, r, c)); });
}
void run(const SumSquaresAxisArgs& a) {
  std::vector<double> sums(static_cast<size_t>(a.out.elements()), 0);
  for (int64_t r = 0; r < a.x.rows(); ++r) {
    for (int64_t c = 0; c < a.x.cols(); ++c)
      sums[static_cast<size_t>(a.axis == 1 ? r : c)] += at(a.x, r, c) * at(a.x, r, c);
  }
  std::transform(sums.begin(), sums.end(), a.out.f32(), [](double s) { return static_cast<float>(s); });
}
void run(const BroadcastRowScalarsArgs& a) {
  fill(a.out, [&](int64_t r, int64_t) { return a.t.f32()[r]; });
}
void run(const Transpose2dArgs& a) {
  fill(a.out, [&](int64_t r, int64_t c) { return at(a.x, c, r); });
}
void run(const SoftmaxRowsArgs& a) {
  fill(a.out, [&](int64_t r, int64_t c) {
    const float* row = a.x.f32() + r * a.x.cols();
    const double most = *std::max_element(row, row + a.x.cols());
    double sum = 0;
    for (int64_t i = 0; i < a.x.cols(); ++i) sum += std::exp(row[i] - most);
    return std::exp(row[c] - most) / sum;
  });
}
void run(const ReshapeDataArgs& a) {
  std::copy_n(a.x.f32(), a.x.elements(), a.out.f32());
}
void run(const MatmulArgs& a) {
  fill(a.out, [&](int64_t r, int64_t c) {
    double sum = 0;
    for (int64_t i = 0; i < a.a.cols(); ++i) sum += at(a.a, r, i) * at(a.b, i, c);
    return sum;
  });
}
void run(const GatherRowsArgs& a) {
  for (int64_t r = 0; r < a.out.rows(); ++r) {
    const int64_t row = a.indices.empty() ? a.first_row + r : a.indices.as<int32_t>()[r];
    const std::vector<float> values = weight_row(*a.table, row);
    std::copy(values.begin(), values.end(), a.out.f32() + r * a.out.cols());
  }
}
void run(const FillStrictUpperTriArgs& a) {
  fill(a.x, [&](int64_t r, int64_t c) { return c > r + a.offset ? a.value : at(a.x, r, c); });
}
void run(const FillStrictLowerTriArgs& a) {
  fill(a.x, [&](int64_t r, int64_t c) { return c < r + a.offset ? a.value : at(a.x, r, c); });
}
void run(const Copy2dFromColsArgs& a) {
  fill(a.out, [&](int64_t r, int64_t c) { return at(a.x, r, c + a.col_offset); });
}
void run(const Copy2dIntoColsArgs& a) {
  fill(a.dst, [&](int64_t r, int64_t c) {
    const bool inside = c >= a.col_offset && c < a.col_offset + a.src.cols();
    return inside ? at(a.src, r, c - a.col_offset) : at(a.dst, r, c);
  });
}
void run(const RepeatRowAsMatrixArgs& a) {
  const std::vector<float> row =
      a.x.empty() ? weight_row(*a.weight_row, 0) : std::vector<float>(a.x.f32(), a.x.f32() + a.x.elements());
  fill(a.out, [&](int64_t, int64_t c) { return row[static_cast<size_t>(c)]; });
}
void run(const ApplyRopeArgs& a) {
  for (int64_t r = 0; r < a.x.rows(); ++r) {
    for (int64_t c = 0; c < a.x.cols(); c += a.head_dim) {
      rotate(a.x.f32() + r * a.x.cols() + c, a.rope, a.positions.as<int32_t>()[r]);
    }
  }
}
void run(const ApplyRopeSingleRowArgs& a) {
  for (int64_t c = 0; c < a.x.elements(); c += a.head_dim) rotate(a.x.f32() + c, a.rope, a.position);
}
void run(const ConcatDim0Args& a) {
  fill(a.out, [&](int64_t r, int64_t c) { return r < a.a.rows() ? at(a.a, r, c) : at(a.b, r - a.a.rows(), c); });
}
void run(const CopyRow2dArgs& a) {
  std::copy_n(a.x.f32() + a.row * a.x.cols(), a.x.cols(), a.out.f32());
}
void run(const CopyContiguousIntoArgs& a) {
  std::copy_n(a.x.f32(), a.x.elements(), a.dst.f32() + a.start);
}
void run(const ArgmaxWithProbArgs& a) {
  for (int64_t r = 0; r < a.x.rows(); ++r) {
    const float* row = a.x.f32() + r * a.x.cols();
    const int64_t best = std::max_element(row, row + a.x.cols()) - row;
    double sum = 0;
    for (int64_t c = 0; c < a.x.cols(); ++c) sum += std::exp(static_cast<double>(row[c]) - row[best]);
    a.index.as<int32_t>()[r] = static_cast<int32_t>(best);
    a.prob.f32()[r] = static_cast<float>(1 / sum);
  }
}
void run(const KvStoreArgs& a) {
  for (int64_t t = 0; t < a.k.rows(); ++t) {
    if (a.batch.slot[t] < 0) continue;
    for (int64_t head = 0; head < a.kv.kv_heads; ++head) {
      const auto store = [&](const KvLayerView& view, const Tensor& rows) {
        quantize_row(view.dtype, rows.f32() + t * rows.cols() + head * view.head_dim,
                     static_cast<char*>(view.k) + view.row_offset(a.batch.slot[t], head), view.head_dim);
      };
      store(a.kv, a.k);
      store(a.kv.values(), a.v);
    }
  }
}
void run(const KvLoadArgs& a) {
  const KvLayerView kv = a.values ? a.kv.values() : a.kv;
  for (int64_t p = 0; p < a.out.rows(); ++p) {
    const int64_t page = a.batch.block_table[int64_t{a.sequence} * a.batch.max_pages + p / kv.page_size];
    const int64_t offset = kv.row_offset(page * kv.page_size + p % kv.page_size, a.head);
    dequantize_row(kv.dtype, static_cast<const char*>(kv.k) + offset, a.out.f32() + p * kv.head_dim, kv.head_dim);
  }
}

double score_of(RouterScore kind, double logit) {
  if (kind == RouterScore::sigmoid) return 1 / (1 + std::exp(-logit));
  if (kind == RouterScore::sqrt_softplus) return std::sqrt(std::log(1 + std::exp(logit)));
  return kind == RouterScore::softmax ? std::exp(logit) : logit;
}

void run(const RouteArgs& a) {
  const auto experts = static_cast<size_t>(a.logits.cols());
  for (int64_t r = 0; r < a.logits.rows(); ++r) {
    std::vector<double> scores(experts);
    double all = 0;
    for (size_t e = 0; e < experts; ++e) {
      scores[e] = score_of(a.routing.score, at(a.logits, r, static_cast<int64_t>(e)));
      all += scores[e];
    }
    if (a.routing.score == RouterScore::softmax) {
      for (double& score : scores) score /= all;
    }
    std::vector<size_t> order(experts);
    for (size_t e = 0; e < experts; ++e) order[e] = e;
    const auto choice = [&](size_t e) {
      return scores[e] + (a.selection_bias.empty() ? 0 : a.selection_bias.f32()[e]);
    };
    std::sort(order.begin(), order.end(),
              [&](size_t x, size_t y) { return choice(x) > choice(y) || (choice(x) == choice(y) && x < y); });
    order.resize(static_cast<size_t>(a.routing.used));
    double sum = 0;
    for (const size_t e : order) {
      if (a.routing.score == RouterScore::softmax_chosen) scores[e] = std::exp(scores[e]);
      sum += scores[e];
    }
    const bool divide = a.routing.normalize || a.routing.score == RouterScore::softmax_chosen;
    float* out = a.out.f32() + r * a.logits.cols();
    std::fill_n(out, experts, 0.0F);
    for (const size_t e : order) out[e] = static_cast<float>(scores[e] / (divide ? sum : 1) * a.routing.scale);
  }
}

template <typename Args>
constexpr bool kIsPrimitive = requires(const Args& args) { run(args); };

// An op added to the list as a primitive needs its reference here.
#define PRIMITIVE(name, Args) static_assert(kIsPrimitive<Args>, "no reference for the primitive " #name);
#define FUSED(name, Args)
#include "backend/op_list.inc"

}  // namespace

void run_primitive(OpImage& image) {
  image.record().visit([](const auto& args) {
    if constexpr (kIsPrimitive<std::decay_t<decltype(args)>>) run(args);
  });
}

}  // namespace inferno::test
