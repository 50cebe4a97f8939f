// y [m, n] = x [m, k] W[n, k]^T + bias [n] for at most 512 rows of x (decoding), limited by reading W once if they are
// few.
//
// Either operand can be the 64 rows of wgmma. Up to 32 tokens are its columns, so that few of them waste nothing;
// more are its rows, so that a tile of less than 64 rows of W wastes nothing either (under load the device lowers its
// clock to keep its power, and products without a use cost power):
//
//      k ->               tokens ->           tokens        k ->                 rows of W      rows of W
//    +------+            +---------+         +--------+   +-------+             +---------+    +---------+
//  r |  W   |  (wgmma) k |   x^T   |   ->  r |  y^T   | t |   x   |  (wgmma)  k |   W^T   | ->t |    y    |
//    +------+            +---------+         +--------+   +-------+             +---------+    +---------+
//
// Tiles: the blocks, one for each SM, take tiles in turn. A tile has as many rows of W, a multiple of 8, as let all SMs
// work for the same time (few_rows_tiles.h; 4096 rows of W: 128 tiles of 32 on 132 SMs), and up to 128 tokens. Tiles of
// the same rows of W and other tokens follow each other, so that they run side by side and W is read once. With W as
// rows, the tensor cores always multiply 64; those beyond the tile are whatever follows in shared memory, and their
// results are not written.
//
// Memory: a ring of stages, each with one or two parts of 64 columns of a tile of W (128 bytes a row) and of x (128
// bytes a token), swizzled by 128 bytes. All stages together fill shared memory: some 30 KB of each SM must be under
// way to cover the latency, and what the ring holds of W (30 MB on all SMs, 7 us of reading) arrives while the kernels
// before this one still compute x.
//
// Steps of a stage s:
//   1. one thread copies W and another one x, so that W never waits for x. Each waits for empty[s] (the computing warps
//      have arrived), announces its bytes on its own barrier and starts its bulk copies. Up to 32 tokens, 44 KB of
//      W are under way at a time: with the whole ring under way, what the kernels before load queues behind it
//      (a norm of one row took 6 us instead of 3);
//   2. the computing warps wait for both and start wgmma of 16 columns each on the accumulators;
//   3. with the products of the next stage under way those of this one are done (warpgroup_wait<1>): arrive on
//      empty[s].
// The ring runs on from tile to tile, so that the copies of a tile begin while the one before is computed.
//
// Why the result does not depend on m: an accumulator is one chain over k in steps of 16 in ascending order, begun at
// zero; other rows and columns are other accumulators. The library's kernels without split k do the same, which makes
// the bits those of any larger product. No link of a chain is beyond k, so that even zeros keep their sign.
#include "backend/cuda/device.h"
#include "ops/linear/few_rows_cuda.h"
#include "ops/linear/few_rows_launch.cuh"

namespace hone {

// An n that is no multiple of kCublasAlignment is left to the library: it computes the last columns by another kernel,
// whose bits differ.
bool launch_few_rows(const GemmArgs& args, bool constant_weight, cudaStream_t stream) {
  static_assert(kCublasAlignment == 8);
  const CudaDevice& device = cuda_device();
  if (device.compute_capability() != 90 || !is_few_rows_product(args)) return false;
  if (!few_rows_pay(args.m, args.n, args.k)) return false;
  if (args.bias != nullptr && args.bias_type != DType::kBf16) return false;
  const FewRowsProduct product{args, constant_weight, device.sm_count(), stream};
  if (args.c_type == DType::kF32) return launch_product<float>(product);
  return args.c_type == DType::kBf16 && launch_product<__nv_bfloat16>(product);
}

}  // namespace hone
