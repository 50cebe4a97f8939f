#include <algorithm>

#include "ops/embedding/embedding.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

void check_tokens(const TensorView& tokens, std::int64_t vocab) {
  const auto* ids = tokens.as<std::int32_t>();
  for (std::int64_t row = 0; row < tokens.rows(); ++row) {
    HONE_ASSERT(ids[row] >= 0 && ids[row] < vocab, "token ", ids[row], " at row ", row,
                " is outside the vocabulary of size ", vocab);
  }
}

template <class T>
void embedding_forward(const KernelCall& call) {
  const TensorView& tokens = call.in(EmbeddingIn::tokens);
  const TensorView& weight = call.in(EmbeddingIn::weight);
  const std::int64_t n = weight.row_size();
  const auto* ids = tokens.as<std::int32_t>();
  const T* table = weight.as<T>();
  T* ys = call.out(0).as<T>();
  check_tokens(tokens, weight.dim(0));
  for_rows(tokens.rows(), n, [&](std::int64_t row) { std::copy_n(table + ids[row] * n, n, ys + row * n); });
  zero_tail(call.out(0));
}

// Adds the rows to the table in order; each thread has some columns. A bf16 table is rounded at each addition.
template <class T, class G>
void gradient(const KernelCall& call) {
  const TensorView& dy = call.in(EmbeddingGradientIn::dy);
  const std::int64_t n = dy.row_size();
  const T* dys = dy.as<T>();
  const auto* ids = call.in(EmbeddingGradientIn::tokens).as<std::int32_t>();
  G* dweight = call.out(0).as<G>();
  parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < dy.rows(); ++row) {
      G* sum = dweight + ids[row] * n;
      for (std::int64_t i = begin; i < end; ++i) sum[i] = static_cast<G>(widen(sum[i]) + widen(dys[row * n + i]));
    }
  });
}

// Copies the rows that the table has; the others are zero.
template <class T>
void part_forward(const KernelCall& call) {
  const TensorView& tokens = call.in(EmbeddingIn::tokens);
  const TensorView& weight = call.in(EmbeddingIn::weight);
  const std::int64_t n = weight.row_size();
  const auto& part = call.attributes_as<EmbeddingPartAttributes>();
  check_tokens(tokens, part.vocab);
  const auto* ids = tokens.as<std::int32_t>();
  const T* table = weight.as<T>();
  T* ys = call.out(0).as<T>();
  for_rows(tokens.rows(), n, [&](std::int64_t row) {
    const std::int64_t own = ids[row] - part.first;
    if (own >= 0 && own < weight.dim(0)) {
      std::copy_n(table + own * n, n, ys + row * n);
    } else {
      std::fill_n(ys + row * n, n, T(0.0f));
    }
  });
  zero_tail(call.out(0));
}

// Adds the rows of the tokens that the table has, as gradient() does.
template <class T, class G>
void part_gradient(const KernelCall& call) {
  const TensorView& dy = call.in(EmbeddingGradientIn::dy);
  const std::int64_t n = dy.row_size();
  const std::int64_t first = call.attributes_as<EmbeddingPartAttributes>().first;
  const std::int64_t vocab = call.out(0).dim(0);
  const T* dys = dy.as<T>();
  const auto* ids = call.in(EmbeddingGradientIn::tokens).as<std::int32_t>();
  G* dweight = call.out(0).as<G>();
  parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < dy.rows(); ++row) {
      const std::int64_t own = ids[row] - first;
      if (own < 0 || own >= vocab) continue;
      G* sum = dweight + own * n;
      for (std::int64_t i = begin; i < end; ++i) sum[i] = static_cast<G>(widen(sum[i]) + widen(dys[row * n + i]));
    }
  });
}

}  // namespace

void register_embedding_cpu(KernelRegistry& registry) {
  registry.add("embedding", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(EmbeddingIn::weight).dtype(), [&]<class T>() { embedding_forward<T>(call); });
                },
                {}});
  registry.add("embedding_gradient", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(EmbeddingGradientIn::dy).dtype(), [&]<class T>() {
                    if (call.out(0).dtype() == DType::kBf16) return gradient<T, BFloat16>(call);
                    gradient<T, Accumulator<T>>(call);
                  });
                },
                {}});
  registry.add("embedding_part", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(EmbeddingIn::weight).dtype(), [&]<class T>() { part_forward<T>(call); });
                },
                {}});
  registry.add("embedding_part_gradient", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(EmbeddingGradientIn::dy).dtype(), [&]<class T>() {
                    if (call.out(0).dtype() == DType::kBf16) return part_gradient<T, BFloat16>(call);
                    part_gradient<T, Accumulator<T>>(call);
                  });
                },
                {}});
}

}  // namespace hone
