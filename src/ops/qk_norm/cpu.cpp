#include <algorithm>

#include "ops/qk_norm/parts.h"
#include "ops/qk_norm/qk_norm.h"
#include "ops/registry.h"
#include "ops/rms_norm/row.h"

namespace hone {
namespace {

template <class T>
void qk_norm_forward(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& qkv = call.in(QkNormIn::qkv);
  const auto& a = call.attributes_as<QkNormAttributes>();
  const std::int64_t n = qkv.row_size();
  const std::int64_t normed = a.heads + a.kv_heads;
  const auto epsilon = static_cast<A>(a.epsilon);
  const T* xs = qkv.as<T>();
  const T* q_weight = call.in(QkNormIn::q_weight).as<T>();
  const T* k_weight = call.in(QkNormIn::k_weight).as<T>();
  T* ys = call.out(QkNormOut::y).as<T>();
  A* rstds = call.out(QkNormOut::rstd).as<A>();
  for_rows(qkv.rows(), n, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < normed; ++head) {
      const std::int64_t at = row * n + head * a.head_dim;
      const T* weight = head < a.heads ? q_weight : k_weight;
      rstds[row * normed + head] = rms_norm_row(xs + at, weight, a.head_dim, epsilon, ys + at);
    }
    std::copy(xs + row * n + normed * a.head_dim, xs + (row + 1) * n, ys + row * n + normed * a.head_dim);
  });
  zero_tail(call.out(QkNormOut::y));
  zero_tail(call.out(QkNormOut::rstd));
}

template <class T>
void qk_norm_input_gradient(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& qkv = call.in(QkNormInputGradientIn::qkv);
  const auto& a = call.attributes_as<QkNormAttributes>();
  const std::int64_t n = qkv.row_size();
  const std::int64_t normed = a.heads + a.kv_heads;
  const T* dys = call.in(QkNormInputGradientIn::dy).as<T>();
  const T* xs = qkv.as<T>();
  const T* q_weight = call.in(QkNormInputGradientIn::q_weight).as<T>();
  const T* k_weight = call.in(QkNormInputGradientIn::k_weight).as<T>();
  const A* rstds = call.in(QkNormInputGradientIn::rstd).as<A>();
  T* dxs = call.out(0).as<T>();
  for_rows(qkv.rows(), 2 * n, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < normed; ++head) {
      const std::int64_t at = row * n + head * a.head_dim;
      const T* weight = head < a.heads ? q_weight : k_weight;
      rms_norm_row_backward(dys + at, xs + at, weight, rstds[row * normed + head], a.head_dim, dxs + at);
    }
    std::copy(dys + row * n + normed * a.head_dim, dys + (row + 1) * n, dxs + row * n + normed * a.head_dim);
  });
  zero_tail(call.out(0));
}

// Gradient of one weight, summed in the order of rows and, within a row, of heads.
template <class T>
void qk_norm_weight_gradient(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& qkv = call.in(QkNormWeightGradientIn::qkv);
  const auto& a = call.attributes_as<QkNormWeightAttributes>();
  const std::int64_t n = qkv.row_size();
  const std::int64_t normed = call.in(QkNormWeightGradientIn::rstd).row_size();
  const std::int64_t head_dim = call.out(0).elements();
  const T* dys = call.in(QkNormWeightGradientIn::dy).as<T>();
  const T* xs = qkv.as<T>();
  const A* rstds = call.in(QkNormWeightGradientIn::rstd).as<A>();
  A* dweight = call.out(0).as<A>();
  const auto row_of = [=, first = a.first_head](std::int64_t row, std::int64_t head) {
    const std::int64_t at = row * n + (first + head) * head_dim;
    return NormRow<T>{dys + at, xs + at, rstds[row * normed + first + head]};
  };
  parallel_for(head_dim, 16, [&](std::int64_t begin, std::int64_t end) {
    rms_norm_weight_gradient<T>(qkv.rows(), a.heads, begin, end, row_of, dweight);
  });
}

}  // namespace

void register_qk_norm_cpu(KernelRegistry& registry) {
  registry.add("qk_norm", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(QkNormIn::qkv).dtype(), [&]<class T>() { qk_norm_forward<T>(call); });
                },
                {}});
  registry.add("qk_norm_input_gradient", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(QkNormInputGradientIn::dy).dtype(),
                               [&]<class T>() { qk_norm_input_gradient<T>(call); });
                },
                {}});
  registry.add("qk_norm_weight_gradient", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(QkNormWeightGradientIn::dy).dtype(),
                               [&]<class T>() { qk_norm_weight_gradient<T>(call); });
                },
                {}});
}

}  // namespace hone
