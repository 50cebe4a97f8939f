// Rotation of one row by a block, shared by rope and rope_append.
#pragma once

#include <algorithm>

#include "ops/cuda_kernel.cuh"

namespace hone {

// A row of n elements, whose first `heads` heads are rotated and whose others are copied.
struct RotatedRow {
  int n;
  int heads, head_dim;
  bool inverse;
};

// Passes the rotated row to store(column, pack), zeros if the row is not `used`. A thread takes the packs at i and
// i + head_dim / 2 of a head, or a pack that is only copied. The loads do not wait for `used`, which is safe because
// there is memory for every row.
template <class T, int kPack, class Store>
__device__ void rotate_row(const T* x, const float* table, bool used, const RotatedRow& row, const Store& store) {
  using A = CudaAccumulator<T>;
  using Elements = Pack<T, kPack>;
  using Rotations = Pack<float, kPack>;
  const int half = row.head_dim / 2;
  const int packs_a_half = half / kPack;
  const int pairs = row.heads * packs_a_half;
  const int rotated = row.heads * row.head_dim;
  const int items = pairs + (row.n - rotated) / kPack;
  const A sign = row.inverse ? A(-1) : A(1);
  for (int item = static_cast<int>(threadIdx.x); item < items; item += static_cast<int>(blockDim.x)) {
    if (item >= pairs) {
      const int at = rotated + (item - pairs) * kPack;
      const Elements copied = *reinterpret_cast<const Elements*>(x + at);
      store(at, used ? copied : Elements{});
      continue;
    }
    const int head = item / packs_a_half;
    const int i = (item - head * packs_a_half) * kPack;
    const int at = head * row.head_dim + i;
    Elements first = *reinterpret_cast<const Elements*>(x + at);
    Elements second = *reinterpret_cast<const Elements*>(x + at + half);
    const Rotations cosines = *reinterpret_cast<const Rotations*>(table + i);
    const Rotations sines = *reinterpret_cast<const Rotations*>(table + half + i);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const A a = widened(first[k]);
      const A b = widened(second[k]);
      const A cosine = static_cast<A>(cosines[k]);
      const A sine = sign * static_cast<A>(sines[k]);
      first[k] = used ? narrowed<T>(a * cosine - b * sine) : T(0);
      second[k] = used ? narrowed<T>(b * cosine + a * sine) : T(0);
    }
    store(at, first);
    store(at + half, second);
  }
}

// Calls body.operator()<kPack>(threads) with the pack of a row and the threads of its block.
template <class T, class Body>
void with_rotated_row(const RotatedRow& row, const Body& body) {
  const auto launch = [&]<int kPack>() {
    const int items = (row.n - row.heads * row.head_dim / 2) / kPack;
    body.template operator()<kPack>(static_cast<unsigned>(std::clamp((items + 31) / 32 * 32, 32, 512)));
  };
  if (row.head_dim / 2 % kPackSize<T> == 0) {
    with_pack<T>(row.n, launch);
  } else {
    launch.template operator()<1>();
  }
}

}  // namespace hone
