#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/registry.h"
#include "ops/router/router.h"
#include "ops/rows.h"

namespace hone {
namespace {

// The sum of weights that are normalized is never below this, so that scores of 0 give weights of 0.
constexpr double kLeastSum = 1e-20;

template <class T>
void scores_of(const T* logits, std::int64_t experts, bool sigmoid, T* scores) {
  if (sigmoid) {
    for (std::int64_t e = 0; e < experts; ++e) scores[e] = T(1) / (T(1) + std::exp(-logits[e]));
    return;
  }
  const T most = *std::max_element(logits, logits + experts);
  for (std::int64_t e = 0; e < experts; ++e) scores[e] = std::exp(logits[e] - most);
  const T sum = lane_sum<T>(experts, [&](std::int64_t e) { return scores[e]; });
  for (std::int64_t e = 0; e < experts; ++e) scores[e] /= sum;
}

// Orders scores: the higher first, of equal ones the lower index. NaN comes last, so that the order is total.
template <class T>
auto by_score(const std::vector<T>& scores) {
  return [&scores](std::int64_t a, std::int64_t b) {
    const T x = scores[a];
    const T y = scores[b];
    if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
    return x > y || (!(x < y) && a < b);
  };
}

// Scratch memory of a thread.
template <class T>
struct Choice {
  std::vector<T> scores, ranked, group_scores;
  std::vector<std::int64_t> order, groups, members;

  Choice(std::int64_t experts, const RouterAttributes& a)
      : scores(experts), ranked(experts), group_scores(a.groups), groups(a.groups), members(experts / a.groups) {}

  // Leaves the indices of the experts that may be chosen in `order`.
  void allow(const RouterAttributes& a) {
    const auto size = static_cast<std::int64_t>(members.size());
    for (std::int64_t g = 0; g < a.groups; ++g) {
      std::iota(members.begin(), members.end(), g * size);
      std::partial_sort(members.begin(), members.begin() + a.group_depth, members.end(), by_score(ranked));
      group_scores[g] = 0;
      for (std::int64_t i = 0; i < a.group_depth; ++i) group_scores[g] += ranked[members[i]];
    }
    std::iota(groups.begin(), groups.end(), 0);
    std::partial_sort(groups.begin(), groups.begin() + a.top_groups, groups.end(), by_score(group_scores));
    order.clear();
    for (std::int64_t i = 0; i < a.top_groups; ++i) {
      for (std::int64_t e = 0; e < size; ++e) order.push_back(groups[i] * size + e);
    }
  }
};

template <class T>
void router_forward(const KernelCall& call) {
  const TensorView& logits = call.in(RouterIn::logits);
  const auto& a = call.attributes_as<RouterAttributes>();
  const std::int64_t experts = logits.row_size();
  const T* bias = call.in(RouterIn::bias) ? call.in(RouterIn::bias).as<T>() : nullptr;
  auto* expert = call.out(RouterOut::expert).as<std::int32_t>();
  T* weight = call.out(RouterOut::weight).as<T>();
  parallel_for(logits.rows(), 16384 / experts + 1, [&](std::int64_t begin, std::int64_t end) {
    Choice<T> choice(experts, a);
    for (std::int64_t row = begin; row < end; ++row) {
      scores_of(logits.as<T>() + row * experts, experts, a.sigmoid, choice.scores.data());
      choice.ranked = choice.scores;
      for (std::int64_t e = 0; bias != nullptr && e < experts; ++e) choice.ranked[e] += bias[e];
      choice.allow(a);
      std::vector<std::int64_t>& order = choice.order;
      std::partial_sort(order.begin(), order.begin() + a.top_k, order.end(), by_score(choice.ranked));
      T sum = 0;
      for (std::int64_t j = 0; j < a.top_k; ++j) sum += choice.scores[order[j]];
      const T scale = static_cast<T>(a.factor) / (a.normalize ? std::max(sum, static_cast<T>(kLeastSum)) : T(1));
      for (std::int64_t j = 0; j < a.top_k; ++j) {
        expert[row * a.top_k + j] = static_cast<std::int32_t>(order[j]);
        weight[row * a.top_k + j] = choice.scores[order[j]] * scale;
      }
    }
  });
  zero_tail(call.out(RouterOut::expert));
  zero_tail(call.out(RouterOut::weight));
}

// With scores s, w_j = factor s_j / S, where S is the sum of the chosen scores, or 1:
// ds_j = factor (dw_j - [normalized] sum_i dw_i s_i / S) / S; then through softmax or sigmoid.
template <class T>
void router_backward(const KernelCall& call) {
  const TensorView& logits = call.in(RouterBackwardIn::logits);
  const auto& a = call.attributes_as<RouterAttributes>();
  const std::int64_t experts = logits.row_size();
  const auto* expert = call.in(RouterBackwardIn::expert).as<std::int32_t>();
  const T* dweight = call.in(RouterBackwardIn::dweight).as<T>();
  T* dlogits = call.out(0).as<T>();
  parallel_for(logits.rows(), 16384 / experts + 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> scores(experts);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int32_t* chosen = expert + row * a.top_k;
      const T* dw = dweight + row * a.top_k;
      T* dx = dlogits + row * experts;
      scores_of(logits.as<T>() + row * experts, experts, a.sigmoid, scores.data());
      T sum = 0;
      T dot = 0;
      for (std::int64_t j = 0; j < a.top_k; ++j) {
        sum += scores[chosen[j]];
        dot += dw[j] * scores[chosen[j]];
      }
      const T divisor = a.normalize ? std::max(sum, static_cast<T>(kLeastSum)) : T(1);
      const T mean = a.normalize ? dot / divisor : T(0);
      const T factor = static_cast<T>(a.factor) / divisor;
      T inner = 0;  // sum of s ds
      std::fill(dx, dx + experts, T(0));
      for (std::int64_t j = 0; j < a.top_k; ++j) {
        dx[chosen[j]] = factor * (dw[j] - mean);
        inner += scores[chosen[j]] * dx[chosen[j]];
      }
      for (std::int64_t e = 0; e < experts; ++e) {
        dx[e] = scores[e] * (a.sigmoid ? (T(1) - scores[e]) * dx[e] : dx[e] - inner);
      }
    }
  });
  zero_tail(call.out(0));
}

// Calls body.operator()<T>() for f32 or f64, the dtypes of logits.
template <class Body>
void for_logits(DType dtype, const Body& body) {
  if (dtype == DType::kF64) return body.template operator()<double>();
  body.template operator()<float>();
}

}  // namespace

void register_router_cpu(KernelRegistry& registry) {
  registry.add("router", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_logits(call.in(RouterIn::logits).dtype(), [&]<class T>() { router_forward<T>(call); });
                },
                {}});
  registry.add("router_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_logits(call.in(RouterBackwardIn::logits).dtype(), [&]<class T>() { router_backward<T>(call); });
                },
                {}});
}

}  // namespace hone
