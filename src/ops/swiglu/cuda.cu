#include <limits>

#include "core/error.h"
#include "ops/registry.h"
#include "ops/swiglu/element.cuh"
#include "ops/swiglu/swiglu.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

// Position of a thread's pack. Consecutive threads take consecutive packs, across the ends of rows.
struct Place {
  std::int64_t row;
  std::int64_t at;  // column of the pack's first element in a row of n
};

template <int kPack>
__device__ Place place_of(int packs_a_row) {
  const std::uint32_t pack = blockIdx.x * kThreads + threadIdx.x;
  const std::uint32_t row = pack / static_cast<std::uint32_t>(packs_a_row);
  return {row, static_cast<std::int64_t>(pack - row * static_cast<std::uint32_t>(packs_a_row)) * kPack};
}

// Computes y = silu(gate) * up.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(const T* gate_up, RowCount rows, std::int64_t n, int packs_a_row, T* y) {
  const auto [row, at] = place_of<kPack>(packs_a_row);
  if (row >= rows.capacity) return;
  begin_dependent_kernel();
  // The loads do not wait for the count, which is safe because there is memory for every row.
  const T* gates = gate_up + row * 2 * n + at;
  const auto gate = load_streamed<T, kPack>(gates);
  const auto up = load_streamed<T, kPack>(gates + n);
  Pack<T, kPack> result{};
  if (row < rows.get()) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      result[k] = swiglu_element(gate[k], up[k]);
    }
  }
  *reinterpret_cast<Pack<T, kPack>*>(y + row * n + at) = result;
}

// Computes dgate = dy up s (1 + gate (1 - s)) and dup = dy gate s, where s = sigmoid(gate).
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(const T* dy, const T* gate_up, RowCount rows, std::int64_t n, int packs_a_row, T* dgate_up) {
  const auto [row, at] = place_of<kPack>(packs_a_row);
  if (row >= rows.capacity) return;
  const T* gates = gate_up + row * 2 * n + at;
  const auto d = load_streamed<T, kPack>(dy + row * n + at);
  const auto gate = load_streamed<T, kPack>(gates);
  const auto up = load_streamed<T, kPack>(gates + n);
  Pack<T, kPack> dgate{};
  Pack<T, kPack> dup{};
  if (row < rows.get()) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      swiglu_gradient_element(d[k], gate[k], up[k], dgate[k], dup[k]);
    }
  }
  T* to = dgate_up + row * 2 * n + at;
  *reinterpret_cast<Pack<T, kPack>*>(to) = dgate;
  *reinterpret_cast<Pack<T, kPack>*>(to + n) = dup;
}

// Calls body.operator()<kPack>(blocks, packs in a row) for a tensor [rows, n]. Throws Error if it has too many packs
// for 32-bit indices.
template <class T, class Body>
void over_rows(const TensorView& view, const Body& body) {
  const std::int64_t n = view.row_size();
  if (view.elements() == 0) return;
  with_pack<T>(n, [&]<int kPack>() {
    const std::int64_t packs = view.capacity() * (n / kPack);
    if (packs > std::numeric_limits<std::uint32_t>::max() - kThreads) {
      throw Error("swiglu", text_of(to_text(*view.type), " is more than one launch can process"),
                  "use smaller micro-batches");
    }
    body.template operator()<kPack>(static_cast<unsigned>(ceil_div(packs, kThreads)), static_cast<int>(n / kPack));
  });
}

template <class T>
void forward(const KernelCall& call) {
  const TensorView& y = call.out(0);
  over_rows<T>(y, [&]<int kPack>(unsigned blocks, int packs_a_row) {
    launch_dependent({blocks, kThreads}, stream_of(call), swiglu_kernel<T, kPack>, cuda_data<T>(call.in(0)),
                     row_count(y), y.row_size(), packs_a_row, cuda_data<T>(y));
  });
  check_launch("swiglu");
}

template <class T>
void backward(const KernelCall& call) {
  const TensorView& dy = call.in(SwigluBackwardIn::dy);
  over_rows<T>(dy, [&]<int kPack>(unsigned blocks, int packs_a_row) {
    swiglu_backward_kernel<T, kPack><<<blocks, kThreads, 0, stream_of(call)>>>(
        cuda_data<T>(dy), cuda_data<T>(call.in(SwigluBackwardIn::gate_up)), row_count(dy), dy.row_size(), packs_a_row,
        cuda_data<T>(call.out(0)));
  });
  check_launch("swiglu_backward");
}

}  // namespace

void register_swiglu_cuda(KernelRegistry& registry) {
  registry.add(
      "swiglu", DeviceKind::kCuda,
      {[](const KernelCall& call) { for_cuda_floating(call.in(0).dtype(), [&]<class T>() { forward<T>(call); }); },
       {}});
  registry.add("swiglu_backward", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  for_cuda_floating(call.in(SwigluBackwardIn::dy).dtype(), [&]<class T>() { backward<T>(call); });
                },
                {}});
}

}  // namespace hone
