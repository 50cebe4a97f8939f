// Structure of gemm(), from the outer to the inner loop:
//
//   threads          C is divided into a grid of rectangles, one for each thread (Grid)
//     column blocks  `columns` columns of the rectangle (Blocking, Part::run)
//       row blocks   `rows` rows
//         k blocks   `depth` elements of k; packs b into panels [depth][columns of a tile], unless it is read in place
//           panels   `rows_packed` rows; packs a into panels [depth][rows of a tile], unless it is read in place
//             tiles  rows by columns of C in registers (TileKernels)
//
// The sums continue from one k block to the next in C itself or, if C is bf16, in the workspace. They are therefore
// neither split nor rounded in between, and each row of C is computed independently of all others.
#include "backend/cpu/gemm.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backend/cpu/bf16_products.h"
#include "backend/cpu/few_rows.h"
#include "backend/cpu/gemm_bf16.h"
#include "backend/cpu/gemm_fp8.h"
#include "backend/cpu/gemm_kernels.h"
#include "backend/cpu/gemm_pack.h"
#include "backend/cpu/gemm_parts.h"
#include "core/error.h"
#include "core/parallel.h"

namespace hone {
namespace {

// Elements between the elements of two successive k up to which a transposed a, or b, is read in place. Beyond, each
// step would touch another page of memory (measured: AVX2, stride 2048: 7% slower than packing).
constexpr std::int64_t kPackStride = 768;
constexpr std::int64_t kPackRows = 96;            // b with a longer stride: for more rows of C, packing costs less
constexpr std::int64_t kWorkPerThread = 1 << 19;  // least multiply-adds that are worth waking a thread
constexpr std::int64_t kMostColumns = 768;        // most columns of b that are packed together
constexpr double kPackingCost = 8.0;              // multiply-adds in the time of packing an element
constexpr std::int64_t kFewRows = 24;             // up to this many rows the blocking is that of few rows
constexpr std::int64_t kStridedDepth = 192;       // most elements of k per block if a is transposed (AVX2)
constexpr std::int64_t kLine = 64;                // bytes of a line of the caches

// Cache blocking of one thread's part of C. A panel of b stays in the L1 cache (with AVX-512 in the L2 cache) while the
// rows of a block of a pass over it from the L2 cache. The blocking does not change the result.
template <class Real>
struct Blocking {
  std::int64_t depth;        // elements of k per block
  std::int64_t rows_packed;  // rows of a packed together
  std::int64_t columns;      // columns of b packed together
  std::int64_t rows;         // rows of C computed with one packing of b
  bool partial;              // partial sums are kept in the workspace between two blocks of k

  explicit Blocking(const GemmArgs& args) {
    const auto& tile = tile_kernels<Real>();
    const bool few = args.m <= kFewRows;
    const std::int64_t most = most_depth(args.m);
    // The lines of a transposed a and of b that are read in place must stay in an L1 cache of 32 KiB.
    const bool strided = args.transpose_a == Transpose::kYes && tile.columns * sizeof(Real) == kLine;
    const std::int64_t deepest = strided ? std::min<std::int64_t>(most, kStridedDepth) : most;
    depth =
        std::max<std::int64_t>(round_up(ceil_div(args.k, ceil_div(std::max<std::int64_t>(args.k, 1), deepest)), 8), 8);
    rows_packed = std::min<std::int64_t>(144, round_up(args.m, tile.rows));
    // A packed panel is used immediately if there are few rows, so it only has to stay in the L1 cache.
    columns = std::min<std::int64_t>(few && args.transpose_b == Transpose::kYes ? tile.columns : kMostColumns,
                                     round_up(args.n, tile.columns));
    partial = args.c_type == DType::kBf16 && (depth < args.k || args.accumulate);
    rows = partial ? std::min<std::int64_t>(720, round_up(args.m, tile.rows)) : round_up(args.m, tile.rows);
  }

  // Workspace of one thread that suffices for all GEMMs of at most this m and k. Fewer rows use deeper blocks, so the
  // maximum is not always at args.m.
  [[nodiscard]] static std::size_t most_bytes(const GemmArgs& args) {
    const auto bytes = [&args](std::int64_t rows) {
      GemmArgs smaller = args;
      smaller.m = rows;
      Blocking blocking(smaller);
      blocking.depth = std::max(blocking.depth, std::min(most_depth(rows), round_up(args.k, 8)));
      return blocking.bytes();
    };
    return std::max(bytes(args.m), bytes(std::min(args.m, kFewRows)));
  }
  [[nodiscard]] static std::int64_t most_depth(std::int64_t rows) {
    return rows <= kFewRows ? 512 : 1536 / static_cast<std::int64_t>(sizeof(Real));
  }
  [[nodiscard]] std::int64_t a_size() const { return round_up(rows_packed * depth, 16); }
  [[nodiscard]] std::int64_t b_size() const { return round_up(columns * depth, 16); }
  [[nodiscard]] std::int64_t partial_size() const { return partial ? round_up(rows * columns, 16) : 0; }
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(a_size() + b_size() + partial_size()) * sizeof(Real);
  }
};

// Block of an operand as the tiles read it: packed, or in place.
template <class Real>
struct Operand {
  bool in_place;
  const Real* data;  // first element of the block
  std::int64_t ld;   // in place: elements from one row of the matrix in memory to the next
};

// Rectangle of memory that is brought into the caches bit by bit while tiles are computed. The processor's own
// prefetching does not follow rows of a few lines or columns of a wide matrix (measured: AVX2, k = 128: 18% slower
// without).
class FetchAhead {
 public:
  FetchAhead() = default;
  // `rows` rows of `bytes` bytes, `stride` bytes apart, which `turns` calls of fetch() bring in.
  FetchAhead(const void* data, std::int64_t rows, std::int64_t bytes, std::int64_t stride, std::int64_t turns)
      : row_(static_cast<const char*>(data)),
        rows_(rows),
        bytes_(bytes),
        stride_(stride),
        lines_(ceil_div(rows * ceil_div(bytes, kLine), std::max<std::int64_t>(turns, 1))) {}
  void fetch() {
    for (std::int64_t i = 0; i < lines_ && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + at_);
      at_ += kLine;
      if (at_ < bytes_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  const char* row_ = nullptr;
  std::int64_t rows_ = 0, bytes_ = 0, stride_ = 0, lines_ = 0, at_ = 0;
};

// Computes one thread's rectangle of C. Operands are read in place if they have the type of the sums and if the tiles
// find them in order: rows of a, columns of a transposed a with a short stride, and whole tiles of columns of b, with a
// short stride or for few rows of C.
template <class Real, class Out>
class Part {
 public:
  Part(const GemmArgs& args, const BlockScales& scales, const Blocking<Real>& blocking, std::byte* workspace)
      : args_(args),
        scales_(scales),
        blocking_(blocking),
        tile_(tile_kernels<Real>()),
        packed_a_(reinterpret_cast<Real*>(workspace)) {
    packed_b_ = packed_a_ + blocking.a_size();
    partial_ = packed_b_ + blocking.b_size();
    const DType type = DTypeOf<Real>::value;
    a_.in_place = args.a_type == type && (args.transpose_a == Transpose::kNo || args.lda <= kPackStride);
    b_.in_place = args.b_type == type && args.transpose_b == Transpose::kNo && args.n % tile_.columns == 0 &&
                  (args.m <= kPackRows || args.ldb <= kPackStride);
  }

  void run(std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin, std::int64_t column_end) {
    for (column_ = column_begin; column_ < column_end; column_ += blocking_.columns) {
      columns_ = std::min(blocking_.columns, column_end - column_);
      for (std::int64_t row = row_begin; row < row_end; row += blocking_.rows) {
        run_chains(row, std::min(blocking_.rows, row_end - row));
      }
    }
  }

 private:
  // Runs the chains of rows [row, row + rows) and the current columns over all of k. If C is narrower than the sums and
  // accumulates, the chains start at its widened values. With k = 0, one empty block still writes C.
  void run_chains(std::int64_t row, std::int64_t rows) {
    const PackSource a{args_.a, args_.a_type, args_.lda, args_.transpose_a == Transpose::kYes};
    const PackSource b{args_.b, args_.b_type, args_.ldb, args_.transpose_b == Transpose::kNo, scales_};
    std::int64_t step = 0;
    if constexpr (!std::is_same_v<Real, Out>) {
      for (std::int64_t i = 0; args_.accumulate && i < rows; ++i) {
        const Out* from = static_cast<const Out*>(args_.c) + (row + i) * args_.ldc + column_;
        Real* to = partial_ + i * blocking_.columns;
        for (std::int64_t j = 0; j < columns_; ++j) to[j] = static_cast<Real>(from[j]);
      }
    }
    do {
      depth_ = std::min(blocking_.depth, args_.k - step);
      load_ = step > 0 || args_.accumulate;
      last_ = step + depth_ == args_.k;
      following_ = std::min(blocking_.depth, args_.k - step - depth_);
      take(b_, b, {column_, columns_, step, depth_}, tile_.columns, packed_b_);
      for (std::int64_t i = 0; i < rows; i += blocking_.rows_packed) {
        const std::int64_t packed = std::min(blocking_.rows_packed, rows - i);
        take(a_, a, {row + i, packed, step, depth_}, tile_.rows, packed_a_);
        const std::int64_t tiles = ceil_div(packed, tile_.rows);
        next_a_ = after_rows(i, packed, rows, tiles * ceil_div(columns_, tile_.columns));
        for (std::int64_t j = 0; j < columns_; j += tile_.columns) {
          next_b_ = after_columns(j, i + packed == rows, tiles);
          for (std::int64_t r = 0; r < packed; r += tile_.rows) run_tile(row, i, r, packed, j);
        }
      }
      step += depth_;
    } while (step < args_.k);
  }

  // The rows of a that are read in place after the `packed` rows at i: those after them, or the first ones of the next
  // k block.
  [[nodiscard]] FetchAhead after_rows(std::int64_t i, std::int64_t packed, std::int64_t rows,
                                      std::int64_t turns) const {
    if (!a_.in_place) return {};
    const bool transposed = args_.transpose_a == Transpose::kYes;
    if (i + packed < rows)
      return ahead(a_, transposed, {packed, std::min(blocking_.rows_packed, rows - i - packed), 0, depth_}, turns);
    return ahead(a_, transposed, {-i, std::min(blocking_.rows_packed, rows), depth_, following_}, turns);
  }
  // The columns of b that are read in place after those of the tile at j: the next ones or, after the last rows, the
  // first ones of the next k block.
  [[nodiscard]] FetchAhead after_columns(std::int64_t j, bool last_rows, std::int64_t turns) const {
    if (!b_.in_place) return {};
    if (j + tile_.columns < columns_) return ahead(b_, true, {j + tile_.columns, tile_.columns, 0, depth_}, turns);
    if (!last_rows) return {};
    return ahead(b_, true, {0, tile_.columns, depth_, following_}, turns);
  }
  [[nodiscard]] FetchAhead ahead(const Operand<Real>& operand, bool depth_major, const PackRange& range,
                                 std::int64_t turns) const {
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(Real));
    const auto [first, lines, begin, depth] = range;
    if (depth_major)
      return {operand.data + begin * operand.ld + first, depth, lines * kSize, operand.ld * kSize, turns};
    return {operand.data + first * operand.ld + begin, lines, depth * kSize, operand.ld * kSize, turns};
  }

  // Makes a block of an operand readable, packed into `memory` unless it is read in place.
  static void take(Operand<Real>& operand, const PackSource& source, const PackRange& range, int width, Real* memory) {
    if (!operand.in_place) {
      pack(source, range, width, memory);
      operand.data = memory;
      return;
    }
    const std::int64_t row = source.depth_major ? range.begin : range.first;
    const std::int64_t column = source.depth_major ? range.first : range.begin;
    operand.data = static_cast<const Real*>(source.data) + row * source.stride + column;
    operand.ld = source.stride;
  }

  // Computes the tile at packed row r, of the packed rows that start at `row` + `block`, and at packed column j. Full
  // tiles are computed in place; partial tiles and tiles that must be narrowed go through a buffer.
  void run_tile(std::int64_t row, std::int64_t block, std::int64_t r, std::int64_t packed, std::int64_t j) {
    const std::int64_t rows = std::min<std::int64_t>(tile_.rows, packed - r);
    const std::int64_t columns = std::min<std::int64_t>(tile_.columns, columns_ - j);
    const bool row_major = a_.in_place && args_.transpose_a == Transpose::kNo;
    const auto kernel = (row_major ? tile_.row_major : tile_.depth_major)[rows - 1];
    next_a_.fetch();
    next_b_.fetch();
    TileArgs<Real> args;
    args.depth = depth_;
    args.a = a_.data + r * (row_major ? a_.ld : (a_.in_place ? 1 : depth_));
    args.lda = a_.in_place ? a_.ld : tile_.rows;
    args.b = b_.data + j * (b_.in_place ? 1 : depth_);
    args.ldb = b_.in_place ? b_.ld : tile_.columns;
    args.load = load_;
    Real* sums;
    std::int64_t stride;
    Out* c = static_cast<Out*>(args_.c) + (row + block + r) * args_.ldc + column_ + j;
    if constexpr (std::is_same_v<Real, Out>) {
      sums = c;
      stride = args_.ldc;
    } else {
      sums = partial_ + (block + r) * blocking_.columns + j;
      stride = blocking_.columns;
    }
    const bool direct = columns == tile_.columns && (std::is_same_v<Real, Out> || !last_);
    if (direct) {
      args.c = sums;
      args.ldc = stride;
      if (r + tile_.rows < packed) args.next = sums + tile_.rows * stride;
      kernel(args);
      if (last_ && args_.bias != nullptr) {
        for (std::int64_t i = 0; i < rows; ++i) add_bias(args_, column_ + j, sums + i * stride, columns);
      }
      return;
    }
    alignas(kGemmAlignment) Real tile[kMaxTileRows * kMaxTileColumns];
    const std::size_t row_bytes = static_cast<std::size_t>(columns) * sizeof(Real);
    std::fill_n(tile, rows * tile_.columns, Real(0));
    for (std::int64_t i = 0; load_ && i < rows; ++i)
      std::memcpy(tile + i * tile_.columns, sums + i * stride, row_bytes);
    args.c = tile;
    args.ldc = tile_.columns;
    kernel(args);
    for (std::int64_t i = 0; i < rows; ++i) {
      Real* from = tile + i * tile_.columns;
      if (last_ && args_.bias != nullptr) add_bias(args_, column_ + j, from, columns);
      if (last_) {
        narrow(c + i * args_.ldc, from, columns);
      } else {
        std::memcpy(sums + i * stride, from, row_bytes);
      }
    }
  }

  const GemmArgs& args_;
  const BlockScales& scales_;
  const Blocking<Real>& blocking_;
  const TileKernels<Real>& tile_;
  Operand<Real> a_{}, b_{};
  Real* packed_a_;
  Real* packed_b_;
  Real* partial_;
  FetchAhead next_a_, next_b_;
  std::int64_t column_ = 0, columns_ = 0;
  std::int64_t depth_ = 0, following_ = 0;  // elements of k of this block and of the next one
  bool load_ = false, last_ = false;
};

template <class Real, class Out>
void run(const GemmArgs& args, const BlockScales& scales = {}) {
  const Blocking<Real> blocking(args);
  const std::size_t share = blocking.bytes();
  const ThreadBuffers buffers = thread_buffers(args, share, kWorkPerThread);
  const TileShape tile{tile_kernels<Real>().rows, tile_kernels<Real>().columns};
  const Grid grid = grid_of(args, tile, buffers.threads, kPackingCost);
  parallel_for(grid.rows * grid.columns, 1, [&](std::int64_t begin, std::int64_t end) {
    Part<Real, Out> part(args, scales, blocking, buffers.base + static_cast<std::size_t>(begin) * share);
    for (std::int64_t i = begin; i < end; ++i) {
      with_part(args, tile, grid, i, [&](auto... bounds) { part.run(bounds...); });
    }
  });
}

void check(const GemmArgs& args) {
  const auto types = {args.a_type, args.b_type, args.c_type, args.bias == nullptr ? args.c_type : args.bias_type};
  const bool all_f64 = std::ranges::all_of(types, [](DType type) { return type == DType::kF64; });
  const bool none_f64 =
      std::ranges::all_of(types, [](DType type) { return type == DType::kF32 || type == DType::kBf16; });
  HONE_ASSERT(all_f64 || none_f64, name_of(args.a_type), " ", name_of(args.b_type), " ", name_of(args.c_type));
  HONE_ASSERT(!args.accumulate || args.bias == nullptr, "bias and accumulate are both set");
  const bool flipped_a = args.transpose_a == Transpose::kYes;
  const bool flipped_b = args.transpose_b == Transpose::kYes;
  HONE_ASSERT(args.m >= 0 && args.n >= 0 && args.k >= 0, args.m, " ", args.n, " ", args.k);
  HONE_ASSERT(
      args.lda >= (flipped_a ? args.m : args.k) && args.ldb >= (flipped_b ? args.k : args.n) && args.ldc >= args.n,
      args.lda, " ", args.ldb, " ", args.ldc);
}

bool both_bf16(const GemmArgs& args) { return args.a_type == DType::kBf16 && args.b_type == DType::kBf16; }

}  // namespace

void gemm(const GemmArgs& args) {
  check(args);
  if (args.m == 0 || args.n == 0) return;
  if (args.c_type == DType::kF64) return run<double, double>(args);
  if (is_few_rows(args)) return few_rows(args);
  if (both_bf16(args) && bf16_products() != Bf16Products::kFma) return gemm_bf16(args);
  if (args.c_type == DType::kBf16) return run<float, BFloat16>(args);
  run<float, float>(args);
}

void gemm_fp8(const GemmArgs& args, const BlockScales& scales) {
  GemmArgs as_bf16 = args;
  as_bf16.b_type = DType::kBf16;
  check(as_bf16);
  HONE_ASSERT(both_bf16(as_bf16) && args.b_type == DType::kU8 && args.transpose_b == Transpose::kYes &&
                  scales.data != nullptr && scales.rows > 0 && scales.stride >= scale_blocks(args.k),
              name_of(args.a_type), " by ", name_of(args.b_type), ", scales of ", scales.rows, " rows and ",
              scales.stride, " columns");
  if (args.m == 0 || args.n == 0) return;
  if (bf16_products() != Bf16Products::kFma) return gemm_bf16(args, scales);
  if (args.c_type == DType::kBf16) return run<float, BFloat16>(args, scales);
  run<float, float>(args, scales);
}

std::size_t gemm_fp8_workspace_bytes(const GemmArgs& args, int threads) {
  GemmArgs as_bf16 = args;
  as_bf16.b_type = DType::kBf16;
  return gemm_workspace_bytes(as_bf16, threads);
}

std::size_t gemm_workspace_bytes(const GemmArgs& args, int threads) {
  std::size_t share =
      args.c_type == DType::kF64 ? Blocking<double>::most_bytes(args) : Blocking<float>::most_bytes(args);
  share = std::max(share, few_rows_share(args));
  if (both_bf16(args)) share = std::max(share, gemm_bf16_share(args));  // whatever the kind, so that plans are the same
  return share * static_cast<std::size_t>(std::max(threads, 1)) + kGemmAlignment;
}

}  // namespace hone
