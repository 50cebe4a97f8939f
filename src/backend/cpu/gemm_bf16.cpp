// Structure of gemm_bf16(), from the outer to the inner loop:
//
//   threads          C is divided into a grid of rectangles, one for each thread (Grid)
//     column blocks  kColumns columns of the rectangle
//       row blocks   all rows; kPartialRows if sums are kept in the workspace
//         k blocks   kDepth elements of k; packs b
//           rows     kRowsPacked rows; packs a unless whole blocks are read in place
//             tiles  32 x 32 of C
#include "backend/cpu/gemm_bf16.h"

#include <algorithm>
#include <type_traits>

#include "backend/cpu/bf16_products.h"
#include "backend/cpu/gemm_bf16_kernels.h"
#include "backend/cpu/gemm_parts.h"
#include "core/error.h"
#include "core/parallel.h"

namespace hone {
namespace {

constexpr std::int64_t kDepth = 1024;
constexpr std::int64_t kColumns = 512;
constexpr std::int64_t kPartialRows = 768;
constexpr std::int64_t kRowsPacked = 128;             // rows of a transposed a that are packed together
constexpr std::int64_t kWorkPerBf16Thread = 1 << 21;  // least multiply-adds that are worth waking a thread
constexpr double kPackingCost = 64.0;                 // multiply-adds in the time of packing an element
constexpr TileShape kTile{kBf16Tile, kBf16Tile};

// Elements of one thread's buffers. The blocking does not change the result.
struct Bf16Blocking {
  std::int64_t depth, columns;
  std::int64_t rows;  // rows whose sums are kept in the workspace; 0: none are
  explicit Bf16Blocking(const GemmArgs& args)
      : depth(std::min(kDepth, round_up(std::max<std::int64_t>(args.k, 1), kBf16Block))),
        columns(std::min(kColumns, round_up(args.n, kBf16Tile))),
        rows(args.c_type == DType::kBf16 && (args.k > kDepth || args.accumulate)
                 ? std::min(kPartialRows, round_up(args.m, kBf16Tile))
                 : 0) {}
  [[nodiscard]] std::int64_t a_size() const { return kRowsPacked * depth; }
  [[nodiscard]] std::int64_t b_size() const { return columns * depth; }
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(a_size() + b_size()) * sizeof(BFloat16) +
           static_cast<std::size_t>(rows * columns) * sizeof(float);
  }
};

// Computes one thread's rectangle of C.
template <class Out>
class Bf16Part {
 public:
  Bf16Part(const GemmArgs& args, const BlockScales& scales, const Bf16Blocking& blocking, const Bf16Kernels& kernels,
           std::byte* workspace)
      : args_(args),
        scales_(scales),
        blocking_(blocking),
        kernels_(kernels),
        packed_a_(reinterpret_cast<BFloat16*>(workspace)) {
    packed_b_ = packed_a_ + blocking.a_size();
    partial_ = reinterpret_cast<float*>(packed_b_ + blocking.b_size());
  }

  void run(std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin, std::int64_t column_end) {
    const std::int64_t most = blocking_.rows > 0 ? blocking_.rows : args_.m;
    for (column_ = column_begin; column_ < column_end; column_ += blocking_.columns) {
      columns_ = std::min(blocking_.columns, column_end - column_);
      for (row_ = row_begin; row_ < row_end; row_ += most) {
        rows_ = std::min(most, row_end - row_);
        run_chains();
      }
    }
  }

 private:
  // Runs the chains of the current rows and columns over all of k. With k = 0, one empty block still writes C.
  void run_chains() {
    if constexpr (std::is_same_v<Out, BFloat16>) {
      for (std::int64_t i = 0; args_.accumulate && i < rows_; ++i) {
        const Out* from = c_at(i, 0);
        for (std::int64_t j = 0; j < columns_; ++j) partial_[i * blocking_.columns + j] = static_cast<float>(from[j]);
      }
    }
    const PackSource b{args_.b, args_.b_type, args_.ldb, args_.transpose_b == Transpose::kNo, scales_};
    step_ = 0;
    do {
      depth_ = std::min(blocking_.depth, args_.k - step_);
      load_ = step_ > 0 || args_.accumulate;
      last_ = step_ + depth_ == args_.k;
      pack_bf16(b, {column_, columns_, step_, depth_}, Bf16Layout::kPairs, packed_b_);
      for (std::int64_t i = 0; i < rows_; i += kRowsPacked) {
        const std::int64_t end = std::min(i + kRowsPacked, rows_);
        if (flipped_a()) pack_a(i, end - i);
        for (std::int64_t r = i; r < end; r += kBf16Tile) run_rows(r, packed_a_ + (r - i) * padded_depth());
      }
      step_ += depth_;
    } while (step_ < args_.k);
  }

  [[nodiscard]] std::int64_t padded_depth() const { return round_up(depth_, kBf16Block); }
  Out* c_at(std::int64_t i, std::int64_t j) const {
    return static_cast<Out*>(args_.c) + (row_ + i) * args_.ldc + column_ + j;
  }

  [[nodiscard]] bool flipped_a() const { return args_.transpose_a == Transpose::kYes; }
  void pack_a(std::int64_t i, std::int64_t rows) {
    const PackSource a{args_.a, args_.a_type, args_.lda, flipped_a()};
    pack_bf16(a, {row_ + i, rows, step_, depth_}, Bf16Layout::kRows, packed_a_);
  }

  // Computes the tiles of up to 32 rows from the i-th on, whose panel is packed already if a is transposed.
  void run_rows(std::int64_t i, const BFloat16* panel) {
    const std::int64_t rows = std::min(kBf16Tile, rows_ - i);
    Bf16TileArgs tile{.blocks = ceil_div(depth_, kBf16Block), .load = load_, .one_half = rows <= 16};
    if (!flipped_a() && rows == kBf16Tile && depth_ % kBf16Block == 0) {
      tile.a = static_cast<const BFloat16*>(args_.a) + (row_ + i) * args_.lda + step_;
      tile.a_row = args_.lda;
      tile.a_half = 16 * args_.lda;
      tile.a_block = kBf16Block;
    } else {
      if (!flipped_a()) pack_a(i, rows);
      tile.a = flipped_a() ? panel : packed_a_;
      tile.a_row = kBf16Block;
      tile.a_half = kBf16Half;
      tile.a_block = kBf16PanelBlock;
    }
    for (std::int64_t j = 0; j < columns_; j += kBf16Tile) {
      tile.b = packed_b_ + j * padded_depth();
      run_tile(tile, i, rows, j, std::min(kBf16Tile, columns_ - j));
    }
  }

  // Whole tiles of f32 are computed in C. Sums of others are in the workspace, where their rows have room for whole
  // tiles, or in a buffer.
  void run_tile(Bf16TileArgs& tile, std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns) const {
    alignas(kGemmAlignment) float buffer[kBf16Tile * kBf16Tile];
    tile.c = buffer;
    tile.ldc = kBf16Tile;
    if constexpr (std::is_same_v<Out, float>) {
      if (rows == kBf16Tile && columns == kBf16Tile) {
        tile.c = c_at(i, j);
        tile.ldc = args_.ldc;
      } else if (load_) {
        std::fill_n(buffer, kBf16Tile * kBf16Tile, 0.0F);
        for (std::int64_t r = 0; r < rows; ++r) narrow(buffer + r * kBf16Tile, c_at(i + r, j), columns);
      }
    } else if (blocking_.rows > 0) {
      tile.c = partial_ + i * blocking_.columns + j;
      tile.ldc = blocking_.columns;
    }
    kernels_.tile(tile);
    const bool kept = std::is_same_v<Out, BFloat16> && !last_;  // in the workspace
    for (std::int64_t r = 0; !kept && r < rows; ++r) {
      float* sums = tile.c + r * tile.ldc;
      if (last_ && args_.bias != nullptr) add_bias(args_, column_ + j, sums, columns);
      if (static_cast<void*>(sums) != c_at(i + r, j)) narrow(c_at(i + r, j), sums, columns);
    }
  }

  const GemmArgs& args_;
  const BlockScales& scales_;
  const Bf16Blocking& blocking_;
  const Bf16Kernels& kernels_;
  BFloat16* packed_a_;
  BFloat16* packed_b_;
  float* partial_;
  std::int64_t column_ = 0, columns_ = 0, row_ = 0, rows_ = 0, step_ = 0, depth_ = 0;
  bool load_ = false, last_ = false;
};

template <class Out>
void run(const GemmArgs& args, const BlockScales& scales) {
  const Bf16Blocking blocking(args);
  const Bf16Kernels kernels = bf16_products() == Bf16Products::kAmx ? bf16_kernels_amx() : bf16_kernels_avx512();
  const std::size_t share = blocking.bytes();
  const ThreadBuffers buffers = thread_buffers(args, share, kWorkPerBf16Thread);
  const Grid grid = grid_of(args, kTile, buffers.threads, kPackingCost);
  parallel_for(grid.rows * grid.columns, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels.begin();
    Bf16Part<Out> part(args, scales, blocking, kernels, buffers.base + static_cast<std::size_t>(begin) * share);
    for (std::int64_t i = begin; i < end; ++i) {
      with_part(args, kTile, grid, i, [&](auto... bounds) { part.run(bounds...); });
    }
    kernels.end();
  });
}

}  // namespace

void gemm_bf16(const GemmArgs& args, const BlockScales& scales) {
  if (args.c_type == DType::kBf16) return run<BFloat16>(args, scales);
  run<float>(args, scales);
}

std::size_t gemm_bf16_share(const GemmArgs& args) { return Bf16Blocking(args).bytes(); }

}  // namespace hone
