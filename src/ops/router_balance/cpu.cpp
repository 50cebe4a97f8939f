#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "ops/registry.h"
#include "ops/router_balance/router_balance.h"
#include "ops/rows.h"

namespace hone {
namespace {

constexpr std::int64_t kChunk = 64;  // tokens whose probabilities are added together

// The tokens of a segment.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t tokens() const { return end - begin; }
};

// Returns `count` segments of as many documents each, one or all of them.
std::vector<Segment> segments_of(const TensorView& cu_seqlens, std::int64_t rows, std::int64_t count) {
  if (!cu_seqlens) return {{0, rows}};
  const auto* bounds = cu_seqlens.as<std::int32_t>();
  std::vector<Segment> segments(static_cast<std::size_t>(count));
  if (count == 0) return segments;
  const std::int64_t documents = (cu_seqlens.rows() - 1) / count;  // of a segment
  for (std::int64_t d = 0; d < count; ++d) {
    const Segment segment{bounds[d * documents], bounds[(d + 1) * documents]};
    HONE_ASSERT(segment.begin >= 0 && segment.begin <= segment.end && segment.end <= rows, "segment ", d, " is [",
                segment.begin, ", ", segment.end, "), outside ", rows, " tokens");
    segments[static_cast<std::size_t>(d)] = segment;
  }
  return segments;
}

// scores = softmax(logits), or sigmoid(logits); returns what they are divided by to become probabilities.
template <class T>
T compute_scores(const T* logits, std::int64_t experts, bool sigmoid, T* scores) {
  if (sigmoid) {
    for (std::int64_t e = 0; e < experts; ++e) scores[e] = T(1) / (T(1) + std::exp(-logits[e]));
  } else {
    const T most = *std::max_element(logits, logits + experts);
    for (std::int64_t e = 0; e < experts; ++e) scores[e] = std::exp(logits[e] - most);
  }
  const T sum = lane_sum<T>(experts, [&](std::int64_t e) { return scores[e]; });
  return sum > T(0) ? sum : T(1);
}

// Tokens of one segment, up to kChunk of them, counted from the segment's first token.
struct Chunk {
  std::size_t segment = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

std::vector<Chunk> chunks_of(const std::vector<Segment>& segments) {
  std::vector<Chunk> chunks;
  for (std::size_t d = 0; d < segments.size(); ++d) {
    for (std::int64_t begin = segments[d].begin; begin < segments[d].end; begin += kChunk) {
      chunks.push_back({d, begin, std::min(begin + kChunk, segments[d].end)});
    }
  }
  return chunks;
}

template <class T>
void sums_forward(const KernelCall& call) {
  const TensorView& logits = call.in(RouterSumsIn::logits);
  const TensorView& expert = call.in(RouterSumsIn::expert);
  const bool sigmoid = call.attributes_as<RouterSumsAttributes>().sigmoid;
  const std::int64_t experts = logits.row_size();
  const std::int64_t top_k = expert.row_size();
  const auto* chosen = expert.as<std::int32_t>();
  const std::vector<Chunk> chunks =
      chunks_of(segments_of(call.in(RouterSumsIn::cu_seqlens), logits.rows(), call.out(0).rows()));
  const auto width = static_cast<std::size_t>(2 * experts);
  std::vector<double> partial(chunks.size() * width);  // [chunks, 2 x experts]
  parallel_for(static_cast<std::int64_t>(chunks.size()), 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<T> scores(static_cast<std::size_t>(experts));
    for (std::int64_t c = first; c < last; ++c) {
      const Chunk& chunk = chunks[static_cast<std::size_t>(c)];
      double* choices = partial.data() + static_cast<std::size_t>(c) * width;
      double* probabilities = choices + experts;
      for (std::int64_t i = chunk.begin * top_k; i < chunk.end * top_k; ++i) choices[chosen[i]] += 1;
      for (std::int64_t row = chunk.begin; row < chunk.end; ++row) {
        const T sum = compute_scores(logits.as<T>() + row * experts, experts, sigmoid, scores.data());
        for (std::int64_t e = 0; e < experts; ++e) {
          probabilities[e] += static_cast<double>(scores[static_cast<std::size_t>(e)] / sum);
        }
      }
    }
  });
  // The chunks of a segment are added in order.
  std::vector<double> totals(static_cast<std::size_t>(call.out(0).capacity()) * width);
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    double* total = totals.data() + chunks[c].segment * width;
    for (std::size_t i = 0; i < width; ++i) total[i] += partial[c * width + i];
  }
  T* out = call.out(0).as<T>();
  for (std::size_t i = 0; i < totals.size(); ++i) out[i] = static_cast<T>(totals[i]);
}

// With probabilities p and their gradients g: dlogit_e = p_e (g_e - sum_j g_j p_j), of sigmoids times 1 - score_e.
template <class T>
void sums_backward(const KernelCall& call) {
  const TensorView& logits = call.in(RouterSumsBackwardIn::logits);
  const T* dsums = call.in(RouterSumsBackwardIn::dsums).as<T>();
  const bool sigmoid = call.attributes_as<RouterSumsAttributes>().sigmoid;
  const std::int64_t experts = logits.row_size();
  const std::vector<Segment> segments = segments_of(call.in(RouterSumsBackwardIn::cu_seqlens), logits.rows(),
                                                    call.in(RouterSumsBackwardIn::dsums).rows());
  T* dlogits = call.out(0).as<T>();
  std::fill_n(dlogits, call.out(0).elements(), T(0));
  const std::vector<Chunk> chunks = chunks_of(segments);
  parallel_for(static_cast<std::int64_t>(chunks.size()), 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<T> scores(static_cast<std::size_t>(experts));
    for (std::int64_t c = first; c < last; ++c) {
      const Chunk& chunk = chunks[static_cast<std::size_t>(c)];
      const T* g = dsums + static_cast<std::int64_t>(chunk.segment) * 2 * experts + experts;
      for (std::int64_t row = chunk.begin; row < chunk.end; ++row) {
        const T sum = compute_scores(logits.as<T>() + row * experts, experts, sigmoid, scores.data());
        const T mean = lane_sum<T>(experts, [&](std::int64_t e) { return g[e] * (scores[e] / sum); });
        for (std::int64_t e = 0; e < experts; ++e) {
          const T score = scores[static_cast<std::size_t>(e)];
          dlogits[row * experts + e] = score / sum * (sigmoid ? T(1) - score : T(1)) * (g[e] - mean);
        }
      }
    }
  });
}

// The factor of choices x probabilities.
double balance_scale(const RouterBalanceAttributes& a, std::int64_t experts, std::int64_t tokens) {
  const double all = static_cast<double>(a.layers) * static_cast<double>(tokens);
  return a.factor * static_cast<double>(experts) / (all * all);
}

template <class T>
void balance_forward(const KernelCall& call) {
  const TensorView& sums = call.in(RouterBalanceIn::sums);
  const std::int64_t experts = sums.row_size() / 2;
  const auto& a = call.attributes_as<RouterBalanceAttributes>();
  T* term = call.out(0).as<T>();
  std::fill_n(term, call.out(0).capacity(), T(0));
  const std::vector<Segment> segments =
      segments_of(call.in(RouterBalanceIn::cu_seqlens), call.out(0).rows(), sums.rows());
  for (std::size_t d = 0; d < segments.size(); ++d) {
    if (segments[d].tokens() == 0) continue;
    const T* choices = sums.as<T>() + static_cast<std::int64_t>(d) * 2 * experts;
    const double sum = lane_sum<double>(experts, [&](std::int64_t e) {
      return static_cast<double>(choices[e]) * static_cast<double>(choices[experts + e]);
    });
    std::fill(term + segments[d].begin, term + segments[d].end,
              static_cast<T>(balance_scale(a, experts, segments[d].tokens()) * sum));
  }
}

template <class T>
void balance_backward(const KernelCall& call) {
  const TensorView& sums = call.in(RouterBalanceBackwardIn::sums);
  const TensorView& dterm = call.in(RouterBalanceBackwardIn::dterm);
  const std::int64_t experts = sums.row_size() / 2;
  const auto& a = call.attributes_as<RouterBalanceAttributes>();
  const T* gradients = dterm.as<T>();
  T* dsums = call.out(0).as<T>();
  std::fill_n(dsums, call.out(0).elements(), T(0));
  const std::vector<Segment> segments =
      segments_of(call.in(RouterBalanceBackwardIn::cu_seqlens), dterm.rows(), sums.rows());
  for (std::size_t d = 0; d < segments.size(); ++d) {
    const Segment& segment = segments[d];
    if (segment.tokens() == 0) continue;
    const double sum = lane_sum<double>(
        segment.tokens(), [&](std::int64_t i) { return static_cast<double>(gradients[segment.begin + i]); });
    const double scale = sum * balance_scale(a, experts, segment.tokens());
    const std::int64_t first = static_cast<std::int64_t>(d) * 2 * experts;
    for (std::int64_t e = 0; e < experts; ++e) {
      dsums[first + experts + e] = static_cast<T>(scale * static_cast<double>(sums.as<T>()[first + e]));
    }
  }
}

template <auto in_f32, auto in_f64>
Kernel kernel_by_output() {
  return {[](const KernelCall& call) { call.out(0).dtype() == DType::kF64 ? in_f64(call) : in_f32(call); }, {}};
}

}  // namespace

void register_router_balance_cpu(KernelRegistry& registry) {
  registry.add("router_sums", DeviceKind::kCpu, kernel_by_output<sums_forward<float>, sums_forward<double>>());
  registry.add("router_sums_backward", DeviceKind::kCpu,
               kernel_by_output<sums_backward<float>, sums_backward<double>>());
  registry.add("router_balance", DeviceKind::kCpu, kernel_by_output<balance_forward<float>, balance_forward<double>>());
  registry.add("router_balance_backward", DeviceKind::kCpu,
               kernel_by_output<balance_backward<float>, balance_backward<double>>());
}

}  // namespace hone
