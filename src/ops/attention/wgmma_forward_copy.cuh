// Shared-memory layout and barriers of wgmma_forward.cuh, and the warpgroup that copies to it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/bulk_copy.cuh"
#include "backend/cuda/mma.cuh"
#include "ops/attention/fp8_boxes.cuh"
#include "ops/attention/tensor_forward_state.cuh"
#include "ops/attention/wgmma_schedule.cuh"

namespace hone {

inline constexpr int kSplitTiles = kSplitKeys / kForwardKeys;

// Sizes of a block with kGroups computing warpgroups. With one, two blocks fit an SM, or one with kDeep, which copies
// further ahead. Of a value head the first kValueDim columns are used.
template <int kHeadDim, int kValueDim, int kGroups, bool kDeep>
struct WgmmaForward {
  static constexpr int kWidth = kHeadDim;
  static constexpr int kValues = kValueDim;
  static constexpr bool kSeparate = kWidth != kValues;  // keys and values have separate stages
  static constexpr int kRows = kGroups * 64;
  static constexpr int kConsumers = kGroups * 128;
  static constexpr int kWarps = kGroups * 4;  // computing warps
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kBlocks = kGroups == 1 && !kSeparate ? 2 : 1;  // of an SM, at least
  static constexpr int kCopyRegisters = 56;
  static constexpr int kRegisters = kGroups == 1 ? 200 : 224;
  // Stages of one tile each: kKeyStages of keys or values, or of keys only if values have their own.
  static constexpr int kKeyStages = kSeparate ? 2 : kDeep ? 6 : kGroups == 1 ? 3 : 4;
  static constexpr int kValueStages = kSeparate ? 2 : 0;
  static constexpr int kStages = kKeyStages + kValueStages;
  // Bytes of tiles of 64 columns.
  static constexpr int kQueryTile = kRows * 128;
  static constexpr int kKeyTile = kForwardKeys * 128;
  static constexpr int kKeyBytes = kWidth / 64 * kKeyTile;
  static constexpr int kValueBytes = kValues / 64 * kKeyTile;
  // Offsets in shared memory, in bytes; q is at 0.
  static constexpr int kStage = kWidth / 64 * kQueryTile;
  static constexpr int kBarriers = kStage + kKeyStages * kKeyBytes + kValueStages * kValueBytes;
  static constexpr int kItems = kBarriers + 192;
  static constexpr int kKeptRows = kItems + 128;
  static constexpr int kKept = kKeptRows + kConsumers / 4 * 16;
  static constexpr int kSharedBytes = kKeptRows;
  // Sums of the splits before are kept in shared memory or, if they do not fit there, in the workspace.
  static constexpr int kKeptBytes = kConsumers / 4 * 16 + kConsumers * kValues / 2 * 4;
  static constexpr bool kKeepsInShared = kKeptRows + kKeptBytes <= 232448;
  static constexpr int kSplitSharedBytes = kKeptRows + (kKeepsInShared ? kKeptBytes : 0);

  // Offset of a stage in shared memory.
  [[nodiscard]] __device__ static int stage_at(int place) {
    if constexpr (kSeparate) {
      if (place >= kKeyStages) return kStage + kKeyStages * kKeyBytes + (place - kKeyStages) * kValueBytes;
    }
    return kStage + place * kKeyBytes;
  }
};

// Addresses of the mbarriers in shared memory, eight bytes each.
struct ForwardBarriers {
  std::uint32_t base;
  [[nodiscard]] __device__ std::uint32_t q_ready() const { return base; }
  [[nodiscard]] __device__ std::uint32_t q_free() const { return base + 8; }
  [[nodiscard]] __device__ std::uint32_t item_ready(int slot) const { return at(2 + slot); }
  [[nodiscard]] __device__ std::uint32_t item_free(int slot) const { return at(4 + slot); }
  [[nodiscard]] __device__ std::uint32_t ready(int stage) const { return at(6 + stage); }
  [[nodiscard]] __device__ std::uint32_t free(int stage) const { return at(12 + stage); }
  [[nodiscard]] __device__ std::uint32_t at(int i) const { return base + static_cast<std::uint32_t>(i) * 8; }
};

// Position in a ring of kPlaces, and the parity of the round, for which barriers are waited.
template <int kPlaces>
struct ForwardRing {
  int place = 0;
  int parity = 0;
  __device__ void next() {
    if (++place < kPlaces) return;
    place = 0;
    parity ^= 1;
  }
};

// A stage, and the parity of its round.
struct ForwardStage {
  int place, parity;
};

// The stages in the order of the tiles K0 K1 V0 K2 V1 ...: one ring, or one of keys and one of values.
template <class Plan>
struct ForwardStages {
  ForwardRing<Plan::kKeyStages> keys;
  ForwardRing<Plan::kValueStages> values;

  // The stage of the next tile of keys or of values.
  template <bool kOfValues>
  [[nodiscard]] __device__ ForwardStage take() {
    if constexpr (Plan::kSeparate && kOfValues) {
      const ForwardStage stage{Plan::kKeyStages + values.place, values.parity};
      values.next();
      return stage;
    } else {
      const ForwardStage stage{keys.place, keys.parity};
      keys.next();
      return stage;
    }
  }
};

struct ForwardMaps {
  CUtensorMap q, k, v;  // boxes of k and v: a tile of packed keys, or a page if Keys::boxed()
};

// The splits of an item that a block takes: `first`, first + step, ...
struct ForwardTurns {
  int first, step;
};

// Waits for the next item of the block and frees its slot.
template <class Item, class Barriers>
[[nodiscard]] __device__ inline Item next_item(const unsigned char* shared_items, ForwardRing<2>& slots,
                                               const Barriers& barriers) {
  barrier_wait(barriers.item_ready(slots.place), slots.parity);
  const Item item = reinterpret_cast<const Item*>(shared_items)[slots.place];
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barriers.item_free(slots.place));
  slots.next();
  return item;
}

// The copying side. Packed keys: one thread copies all rows of 64 columns of a tile by one instruction. Pages that fill
// whole swizzled rows of shared memory (Keys::boxed()): the lanes of one warp copy a page, or half its columns, each.
// Other pages: all 128 threads of the warpgroup copy 16 bytes at a time.
template <class Plan, class Keys>
struct ForwardCopy {
  static constexpr int kWidth = Plan::kWidth;
  static constexpr bool kPaged = Keys::kDecodes;
  static constexpr int kPending =
      Plan::kStages - (Plan::kStages > 3 ? 2 : 1);  // tiles that may be in flight, if threads copy

  const Keys& keys;
  const ForwardMaps& maps;
  std::uint32_t shared;
  ForwardBarriers barriers;
  int kv_head, box_heads, box_bytes;  // heads and bytes of a TMA box of queries, which has 64 columns
  ForwardStages<Plan> stages;
  ForwardStages<Plan> under_way;  // the oldest tile in flight, if threads copy
  int pending = 0;
  unsigned of_values = 0;  // bit i: the i-th oldest tile in flight is one of values

  // Starts copying the item's queries once the last item's have been read.
  __device__ void queries(const AttentionItem& item, int parity) {
    barrier_wait(barriers.q_free(), parity ^ 1);
    barrier_expect(barriers.q_ready(), box_bytes * (kWidth / 64));
    for (int part = 0; part < kWidth / 64; ++part) {
      bulk_copy_box(shared + static_cast<std::uint32_t>(part * Plan::kQueryTile), maps.q, part * 64,
                    kv_head * box_heads, item.row, barriers.q_ready());
    }
  }
  // Waits for this thread's copies of the oldest tile in flight and arrives at its ready barrier.
  __device__ void complete_oldest_tile() {
    switch (pending) {
      case 1:
        copy_async_wait<0>();
        break;
      case 2:
        copy_async_wait<1>();
        break;
      case 3:
        copy_async_wait<2>();
        break;
      case 4:
        copy_async_wait<3>();
        break;
      default:
        copy_async_wait<4>();
        break;
    }
    fence_async_shared();
    const ForwardStage stage = of_values % 2 != 0 ? under_way.template take<true>() : under_way.template take<false>();
    barrier_arrive(barriers.ready(stage.place));
    of_values /= 2;
    --pending;
  }
  // Copies rows that follow each other in memory to a stage.
  template <bool kOfValues>
  __device__ void copy_boxes(const AttentionItem& item, int key, std::uint32_t to, std::uint32_t ready) const {
    barrier_expect(ready, kOfValues ? Plan::kValueBytes : Plan::kKeyBytes);
    for (int part = 0; part < (kOfValues ? Plan::kValues : kWidth) / 64; ++part) {
      bulk_copy_box(to + static_cast<std::uint32_t>(part * Plan::kKeyTile), kOfValues ? maps.v : maps.k, part * 64,
                    kv_head, item.key_row + key, ready);
    }
  }
  // Copies keys [key, key + kForwardKeys) or their values to the next stage. Rows after item.work are zeros (paged) or
  // the rows that follow in memory (packed); their weights are 0.
  template <bool kOfValues>
  __device__ void rows(const AttentionItem& item, int key) {
    constexpr int kColumns = kOfValues ? Plan::kValues : kWidth;
    const ForwardStage stage = stages.template take<kOfValues>();
    const std::uint32_t to = shared + static_cast<std::uint32_t>(Plan::stage_at(stage.place));
    const std::uint32_t ready = barriers.ready(stage.place);
    if constexpr (!kPaged) {
      barrier_wait(barriers.free(stage.place), stage.parity ^ 1);
      copy_boxes<kOfValues>(item, key, to, ready);
    } else if constexpr (Keys::kFp8) {
      barrier_wait(barriers.free(stage.place), stage.parity ^ 1);
      if (item.key_row < 0) {
        widen_rows<kOfValues>(item, key, to);
        fence_async_shared();
        barrier_arrive(ready);
      } else if (threadIdx.x % 128 != 0) {
        barrier_arrive(ready);
      } else {
        copy_boxes<kOfValues>(item, key, to, ready);
      }
    } else {
      while (!barrier_done(barriers.free(stage.place), stage.parity ^ 1)) {
        if (pending > 0)
          complete_oldest_tile();  // the computing warps may be waiting for that tile before they free a stage
      }
      // A warp copies 32 rows; each lane looks up the page of one.
      constexpr int kChunks = kColumns / 8;
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const int warp_row = static_cast<int>(threadIdx.x) % 128 / 32 * 32;
      SequenceTile tile{};
      tile.sequence = item.sequence;
      const bool own = key + warp_row + lane < item.work;
      const std::int64_t offset = own ? keys.offset(tile, key + warp_row + lane) : 0;
      const __nv_bfloat16* from = (kOfValues ? keys.v : keys.k) + kv_head * kWidth;
#pragma unroll 4
      for (int i = 0; i < kChunks; ++i) {
        const int row = (i * 32 + lane) / kChunks;
        const int chunk = (i * 32 + lane) % kChunks;
        const std::int64_t row_offset = __shfl_sync(0xFFFFFFFFu, offset, row);
        const SharedRows<64> target{to + static_cast<std::uint32_t>(chunk / 8 * Plan::kKeyTile)};
        copy_async16(target.at(warp_row + row, chunk % 8), from + row_offset + chunk * 8,
                     key + warp_row + row < item.work);
      }
      copy_async_commit();
      of_values |= static_cast<unsigned>(kOfValues) << pending;
      if (++pending > kPending) complete_oldest_tile();
    }
  }
  // Writes the rows of a tile of FP8 pages to a stage, widened; rows after item.work are zeros. A warp has 32 rows, of
  // which each lane looks up one.
  template <bool kOfValues>
  __device__ void widen_rows(const AttentionItem& item, int key, std::uint32_t to) const {
    constexpr int kChunks = (kOfValues ? Plan::kValues : kWidth) / 8;
    constexpr int kAhead = 8;  // loads in flight
    const int warp_row = static_cast<int>(threadIdx.x) % 128 / 32 * 32;
    SequenceTile tile{};
    tile.sequence = item.sequence;
    const bool own = key + warp_row + lane() < item.work;
    const std::int64_t offset = own ? keys.offset(tile, key + warp_row + lane()) : 0;
    const std::uint8_t* scales = kOfValues ? keys.value_scales : keys.key_scales;
    const std::uint32_t factor = own ? head_factor(scales[keys.scale(tile, key + warp_row + lane(), kv_head)]) : 0;
    const std::uint8_t* from = (kOfValues ? keys.v : keys.k) + kv_head * kWidth;
    for (int first = 0; first < kChunks; first += kAhead) {
      uint2 bytes[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int place = (first + i) * 32 + lane();
        const std::int64_t row_offset = __shfl_sync(0xFFFFFFFFu, offset, place / kChunks);
        bytes[i] = make_uint2(0, 0);
        if (key + warp_row + place / kChunks < item.work) {
          bytes[i] = *reinterpret_cast<const uint2*>(from + row_offset + place % kChunks * 8);
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int place = (first + i) * 32 + lane();
        const int chunk = place % kChunks;
        const SharedRows<64> target{to + static_cast<std::uint32_t>(chunk / 8 * Plan::kKeyTile)};
        store_shared16(target.at(warp_row + place / kChunks, chunk % 8),
                       widened_eight(bytes[i], __shfl_sync(0xFFFFFFFFu, factor, place / kChunks)));
      }
    }
  }
  // The lane's page among the 32 that begin with page `first` of the item's sequence; -1 if there is none.
  [[nodiscard]] __device__ int load_page(const AttentionItem& item, int first) const {
    const int page = first + lane();
    if (page << page_bits() >= item.work) return -1;
    return keys.table[std::int64_t{item.sequence} * keys.max_blocks + page];
  }
  // Copies the pages of a tile of keys or values to the next stage. Rows after item.work are what was there before.
  template <bool kOfValues>
  __device__ void pages(const AttentionItem& item, int key, int page) {
    constexpr int kColumns = kOfValues ? Plan::kValues : kWidth;
    const ForwardStage stage = stages.template take<kOfValues>();
    const std::uint32_t to = shared + static_cast<std::uint32_t>(Plan::stage_at(stage.place));
    const std::uint32_t ready = barriers.ready(stage.place);
    const int count = (min(kForwardKeys, item.work - key) + keys.block_size - 1) >> page_bits();
    barrier_wait(barriers.free(stage.place), stage.parity ^ 1);
    const int row_bytes = Keys::kFp8 ? kColumns + 1 : kColumns * 2;
    if (lane() == 0) barrier_expect(ready, (count << page_bits()) * row_bytes);
    __syncwarp();
    if (page < 0) return;
    const int row = (lane() & (lanes_a_part() - 1)) << page_bits();
    if constexpr (Keys::kFp8) {
      const int part = lane() >> part_bits();  // 0: the page, 1: its scales
      if (part == 0) {
        bulk_copy_box(to + static_cast<std::uint32_t>(row * kColumns), kOfValues ? maps.v : maps.k, 0, kv_head,
                      page * keys.block_size, ready);
      } else if (part == 1) {
        const std::uint8_t* scales = kOfValues ? keys.value_scales : keys.key_scales;
        bulk_copy_bytes(shared + static_cast<std::uint32_t>(Plan::scales_at(stage.place) + row),
                        scales + (std::int64_t{page} * keys.kv_heads + kv_head) * keys.block_size, keys.block_size,
                        ready);
      }
    } else {
      for (int part = lane() >> part_bits(); part < kColumns / 64; part += 32 >> part_bits()) {
        bulk_copy_box(to + static_cast<std::uint32_t>(part * Plan::kKeyTile + row * 128), kOfValues ? maps.v : maps.k,
                      part * 64, kv_head, page * keys.block_size, ready);
      }
    }
  }
  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // Pages that are boxes have a power of two of rows. A division here would be done for every tile by the one warp that
  // copies, before it starts a copy.
  [[nodiscard]] __device__ int page_bits() const { return __ffs(keys.block_size) - 1; }
  [[nodiscard]] __device__ int part_bits() const { return __ffs(kForwardKeys) - 1 - page_bits(); }
  [[nodiscard]] __device__ int lanes_a_part() const { return 1 << part_bits(); }

  // Copies the tiles of a split by pages, of keys, of values, or of both in the order K0 K1 V0 K2 V1 ..., and calls
  // before(tile) before each of them. 32 pages are looked up in one load, and the next 32 while they are used.
  template <bool kKeys, bool kOfValues, class Before>
  __device__ void split_by_pages(const AttentionItem& item, int first, int count, const Before& before) {
    constexpr int kBehind = kKeys && kOfValues ? 1 : 0;  // tiles by which values follow keys
    const int pages_a_tile = lanes_a_part();
    const int first_page = first * pages_a_tile;
    int held = load_page(item, first_page);
    int next = load_page(item, first_page + 32);
    int page = -1;
    for (int i = 0; i < count + kBehind; ++i) {
      const int last = page;
      if (i < count) {
        const int place = i * pages_a_tile;
        if (i > 0 && place % 32 == 0) {
          held = next;
          next = load_page(item, first_page + place + 32);
        }
        page = __shfl_sync(0xFFFFFFFFu, held, place % 32 + (lane() & (pages_a_tile - 1)));
        if constexpr (kKeys) {
          before(first + i);
          pages<false>(item, (first + i) * kForwardKeys, page);
        }
      }
      if constexpr (kOfValues) {
        if (i < kBehind) continue;
        before(first + i - kBehind);
        pages<true>(item, (first + i - kBehind) * kForwardKeys, kBehind > 0 ? last : page);
      }
    }
  }

  // Copies all keys and values of the item's splits in the order K0 K1 V0 K2 V1 ..., in which they are used.
  __device__ void item(const AttentionItem& item, const ForwardTurns& turns) {
    const int tiles = (item.work + kForwardKeys - 1) / kForwardKeys;
    for (int first = turns.first * kSplitTiles; first < tiles; first += turns.step * kSplitTiles) {
      const int count = min(kSplitTiles, tiles - first);
      if constexpr (kPaged && !Keys::kFp8) {
        if (keys.boxed()) {
          split_by_pages<true, true>(item, first, count, [](int) {});
          continue;
        }
      }
      for (int i = 0; i <= count; ++i) {
        if (i < count) rows<false>(item, (first + i) * kForwardKeys);
        if (i > 0) rows<true>(item, (first + i - 1) * kForwardKeys);
      }
    }
    while (pending > 0) complete_oldest_tile();
  }
};

}  // namespace hone
