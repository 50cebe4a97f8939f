#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "backend/cpu/gemm.h"
#include "ops/linear/products.h"
#include "ops/lora/lora.h"
#include "ops/ranks/communication.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

LoraParts parts_of(const KernelCall& call) { return lora_parts_from_text(call.attributes_as<LoraAttributes>().parts); }

template <class T>
void spread(const KernelCall& call) {
  const LoraParts parts = parts_of(call);
  const auto scale = static_cast<Accumulator<T>>(call.attributes_as<LoraAttributes>().scale);
  const T* b = call.in(0).as<T>();
  T* up = call.out(0).as<T>();
  const std::int64_t rank = call.in(0).row_size();
  const std::int64_t width = call.out(0).row_size();
  for_rows(call.out(0).capacity(), width, [&](std::int64_t row) {
    const int part = parts.of(row);
    for (std::int64_t column = 0; column < width; ++column) {
      up[row * width + column] =
          column / rank == part ? static_cast<T>(widen(b[row * rank + column % rank]) * scale) : T(0.0f);
    }
  });
}

// Adds the gradient of up to that of b. D is the dtype of dup, G that of the sum.
template <class D, class G>
void collect(const KernelCall& call) {
  using A = Accumulator<D>;
  const LoraParts parts = parts_of(call);
  const auto scale = static_cast<A>(call.attributes_as<LoraAttributes>().scale);
  const D* dup = call.in(LoraCollectIn::dup).as<D>();
  G* db = call.out(0).as<G>();
  const std::int64_t rank = call.out(0).row_size();
  const std::int64_t width = call.in(LoraCollectIn::dup).row_size();
  for_rows(call.out(0).capacity(), rank, [&](std::int64_t row) {
    const int part = parts.of(row);
    if (part < 0) return;
    for (std::int64_t i = 0; i < rank; ++i) {
      G& sum = db[row * rank + i];
      sum = static_cast<G>(widen(sum) + widen(dup[row * width + part * rank + i]) * scale);
    }
  });
}

template <class D>
void collect(const KernelCall& call) {
  if (call.out(0).dtype() == DType::kBf16) {
    if constexpr (!std::is_same_v<D, double>) collect<D, BFloat16>(call);
  } else {
    collect<D, Accumulator<D>>(call);
  }
}

void adapted(const KernelCall& call) {
  GemmArgs args =
      linear_product(*call.in(LoraLinearIn::x).type, *call.in(LoraLinearIn::weight).type, *call.out(0).type);
  args.m = call.in(LoraLinearIn::x).rows();
  args.a = call.in(LoraLinearIn::x).data;
  args.b = call.in(LoraLinearIn::weight).data;
  args.c = call.out(0).data;
  args.workspace = call.workspace;
  if (call.in(LoraLinearIn::bias)) {
    args.bias = call.in(LoraLinearIn::bias).data;
    args.bias_type = call.in(LoraLinearIn::bias).dtype();
  }
  gemm(args);
  GemmArgs more = linear_product(*call.in(LoraLinearIn::h).type, *call.in(LoraLinearIn::up).type, *call.out(0).type);
  more.m = args.m;
  more.a = call.in(LoraLinearIn::h).data;
  more.b = call.in(LoraLinearIn::up).data;
  more.c = call.out(0).data;
  more.accumulate = true;
  more.workspace = call.workspace;
  gemm(more);
  zero_tail(call.out(0));
}

std::size_t adapted_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  GemmArgs more =
      linear_product(required(inputs, LoraLinearIn::h, "lora"), required(inputs, LoraLinearIn::up, "lora"), outputs[0]);
  more.accumulate = true;
  return std::max(gemm_workspace_bytes(linear_product(required(inputs, LoraLinearIn::x, "lora"),
                                                      required(inputs, LoraLinearIn::weight, "lora"), outputs[0]),
                                       thread_count()),
                  gemm_workspace_bytes(more, thread_count()));
}

template <class T>
void lora_norm(const KernelCall& call) {
  using A = Accumulator<T>;
  const T* weight = call.in(LoraDoraNormIn::weight).as<T>();
  const T* delta = call.in(LoraDoraNormIn::delta).as<T>();
  A* norms = call.out(0).as<A>();
  const std::int64_t n = call.in(LoraDoraNormIn::weight).row_size();
  for_rows(call.out(0).capacity(), n, [&](std::int64_t row) {
    const A sum = lane_sum<A>(n, [&](std::int64_t i) {
      const A value = widen(weight[row * n + i]) + widen(delta[row * n + i]);
      return value * value;
    });
    norms[row] = std::max(std::sqrt(sum), A(1e-12));
  });
}

template <class T>
void norm_part(const KernelCall& call) {
  using A = Accumulator<T>;
  lora_norm<T>(call);
  A* norms = call.out(0).as<A>();
  const std::int64_t rows = call.out(0).capacity();
  for (std::int64_t row = 0; row < rows; ++row) norms[row] *= norms[row];
  tensor_group().all_reduce(call.out(0).data, call.out(0).dtype(), static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; ++row) norms[row] = std::sqrt(norms[row]);
}

template <class T>
void scale(const KernelCall& call) {
  using A = Accumulator<T>;
  const LoraParts parts = parts_of(call);
  const TensorView& z = call.in(LoraDoraScaleIn::z);
  const std::int64_t n = z.row_size();
  std::vector<A> factors(static_cast<std::size_t>(n), A(1));
  std::vector<A> biases(static_cast<std::size_t>(n), A(0));
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (parts.of(i) >= 0)
      factors[at] = widen(call.in(LoraDoraScaleIn::magnitude).as<T>()[i]) / call.in(LoraDoraScaleIn::norm).as<A>()[i];
    if (call.in(LoraDoraScaleIn::bias)) biases[at] = widen(call.in(LoraDoraScaleIn::bias).as<T>()[i]);
  }
  const T* from = z.as<T>();
  T* to = call.out(0).as<T>();
  for_rows(z.rows(), n, [&](std::int64_t row) {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      to[row * n + i] = static_cast<T>(widen(from[row * n + i]) * factors[at] + biases[at]);
    }
  });
  zero_tail(call.out(0));
}

template <class T>
void product(const KernelCall& call) {
  using A = Accumulator<T>;
  const LoraParts parts = parts_of(call);
  const TensorView& dy = call.in(LoraDoraProductIn::dy);
  const std::int64_t n = dy.row_size();
  const T* dys = dy.as<T>();
  const T* zs = call.in(LoraDoraProductIn::z).as<T>();
  const A* norms = call.in(LoraDoraProductIn::norm).as<A>();
  T* to = call.out(0).as<T>();
  std::vector<char> has_part(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) has_part[static_cast<std::size_t>(i)] = parts.of(i) >= 0 ? 1 : 0;
  for_rows(dy.rows(), n, [&](std::int64_t row) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = row * n + i;
      to[at] = has_part[static_cast<std::size_t>(i)] != 0 ? static_cast<T>(widen(dys[at]) * widen(zs[at]) / norms[i])
                                                          : T(0.0f);
    }
  });
  zero_tail(call.out(0));
}

template <class T>
void choose_bias(const KernelCall& call) {
  const LoraParts parts = parts_of(call);
  const std::int64_t n = call.out(0).elements();
  for (std::int64_t i = 0; i < n; ++i) {
    call.out(0).as<T>()[i] =
        parts.of(i) >= 0 ? call.in(LoraBiasIn::trained).as<T>()[i] : call.in(LoraBiasIn::frozen).as<T>()[i];
  }
}

template <class T>
void collect_bias(const KernelCall& call) {
  const LoraParts parts = parts_of(call);
  const std::int64_t n = call.out(0).elements();
  for (std::int64_t i = 0; i < n; ++i) {
    if (parts.of(i) >= 0) call.out(0).as<Accumulator<T>>()[i] += widen(call.in(LoraBiasCollectIn::dbias).as<T>()[i]);
  }
}

template <class T>
void join(const KernelCall& call) {
  const TensorView& to = call.out(0);
  const auto left = static_cast<std::size_t>(call.in(LoraJoinIn::a).row_size());
  const auto right = static_cast<std::size_t>(call.in(LoraJoinIn::b).row_size());
  for_rows(to.rows(), to.row_size(), [&](std::int64_t row) {
    const auto at = static_cast<std::size_t>(row);
    T* begin = to.as<T>() + at * (left + right);
    std::copy_n(call.in(LoraJoinIn::a).as<T>() + at * left, left, begin);
    std::copy_n(call.in(LoraJoinIn::b).as<T>() + at * right, right, begin + left);
  });
  zero_tail(to);
}

template <class T>
void lora_take(const KernelCall& call) {
  const TensorView& to = call.out(0);
  const std::int64_t width = call.in(0).row_size();
  const auto first = call.attributes_as<LoraColumns>().first;
  for_rows(to.rows(), to.row_size(), [&](std::int64_t row) {
    std::copy_n(call.in(0).as<T>() + row * width + first, to.row_size(), to.as<T>() + row * to.row_size());
  });
  zero_tail(to);
}

}  // namespace

void register_lora_cpu(KernelRegistry& registry) {
  const auto add = [&](std::string_view op, auto run) { registry.add(op, DeviceKind::kCpu, {std::move(run), {}}); };
  add("lora_spread",
      [](const KernelCall& call) { for_floating(call.in(0).dtype(), [&]<class T>() { spread<T>(call); }); });
  add("lora_collect", [](const KernelCall& call) {
    for_floating(call.in(LoraCollectIn::dup).dtype(), [&]<class T>() { collect<T>(call); });
  });
  registry.add("lora_linear", DeviceKind::kCpu, {adapted, adapted_workspace});
  add("lora_dora_norm", [](const KernelCall& call) {
    for_floating(call.in(LoraDoraNormIn::weight).dtype(), [&]<class T>() { lora_norm<T>(call); });
  });
  add("lora_dora_norm_part", [](const KernelCall& call) {
    for_floating(call.in(LoraDoraNormIn::weight).dtype(), [&]<class T>() { norm_part<T>(call); });
  });
  add("lora_dora_scale", [](const KernelCall& call) {
    for_floating(call.in(LoraDoraScaleIn::z).dtype(), [&]<class T>() { scale<T>(call); });
  });
  add("lora_dora_product", [](const KernelCall& call) {
    for_floating(call.in(LoraDoraProductIn::dy).dtype(), [&]<class T>() { product<T>(call); });
  });
  add("lora_bias", [](const KernelCall& call) {
    for_floating(call.in(LoraBiasIn::trained).dtype(), [&]<class T>() { choose_bias<T>(call); });
  });
  add("lora_bias_collect", [](const KernelCall& call) {
    for_floating(call.in(LoraBiasCollectIn::dbias).dtype(), [&]<class T>() { collect_bias<T>(call); });
  });
  add("lora_join",
      [](const KernelCall& call) { for_floating(call.in(LoraJoinIn::a).dtype(), [&]<class T>() { join<T>(call); }); });
  add("lora_columns",
      [](const KernelCall& call) { for_floating(call.in(0).dtype(), [&]<class T>() { lora_take<T>(call); }); });
}

}  // namespace hone
