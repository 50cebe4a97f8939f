// Sizes of a block of wgmma_decode.cuh.
#pragma once

#include "ops/attention/wgmma_forward.cuh"

namespace hone {

// The barriers of the buffers of weights, where two warpgroups compute.
struct WeightBarriers : ForwardBarriers {
  [[nodiscard]] __device__ std::uint32_t filled(int buffer) const { return at(18 + buffer); }
  [[nodiscard]] __device__ std::uint32_t read(int buffer) const { return at(24 + buffer); }
};

// Forms of the kernel: the number of blocks on an SM and of an item.
enum class DecodeForm {
  kMany,   // two blocks an SM
  kDeep,   // one, which copies further ahead, for fewer items than SMs
  kPairs,  // one, and two of them for each item (wgmma_decode_pair.cuh), for at most half as many items as SMs
};

// Sizes of a block. With kFp8 a stage holds the bytes of a tile of FP8 pages and their scales, two warpgroups compute,
// and two warps of a third one copy.
template <int kHeadDim, DecodeForm kForm, bool kFp8Pages = false>
struct WgmmaDecode {
  static constexpr bool kFp8 = kFp8Pages;
  static constexpr bool kDeep = kForm != DecodeForm::kMany;
  static constexpr bool kPair = kForm == DecodeForm::kPairs;
  static constexpr int kCluster = kPair ? 2 : 1;  // blocks of an item
  static constexpr int kWidth = kHeadDim;
  static constexpr int kRows = 8;       // query rows of a part
  static constexpr int kItemRows = 64;  // query rows of an item
  static constexpr int kParts = kWidth / 64;
  static constexpr int kGroup = 128;  // threads of a warpgroup
  static constexpr int kWarps = kGroup / 32;
  static constexpr int kConsumers = kFp8 ? 2 * kGroup : kGroup;  // threads that compute
  static constexpr int kThreads = kConsumers + (kFp8 ? kGroup : 32);
  static constexpr int kItemReaders = kConsumers / 32 + (kFp8 ? 1 : 0);  // warps
  // Two blocks of 384 threads have 80 registers each, of which those that copy need fewer.
  static constexpr bool kMovesRegisters = kFp8 && !kDeep;
  static constexpr int kCopyRegisters = 56;
  static constexpr int kRegisters = 88;
  static constexpr int kBlocks = kDeep ? 1 : 2;             // of an SM, at least
  static constexpr int kStages = kDeep ? 6 : kFp8 ? 5 : 3;  // of one tile of keys or values each
  // Buffers of P, decays and maxima of rows, and unless these pass to another block of weights and maxima of warps.
  static constexpr int kBuffers = kPair ? 4 : kFp8 ? 2 : 1;
  static constexpr int kOwnBuffers = kPair ? 1 : kBuffers;
  // With kPair, a message to the other block: P, decays, maxima, totals.
  static constexpr int kMessageBytes = 2 * kRows * 128 + 3 * kRows * 4;
  static constexpr int kMessageStride = 3 * 1024;
  // Bytes of tiles of 64 columns.
  static constexpr int kQueryTile = kRows * 128;
  static constexpr int kKeyTile = kForwardKeys * 128;
  static constexpr int kStageBytes = kFp8 ? kForwardKeys * kWidth : kParts * kKeyTile;
  // Keys and values share the stages (ForwardCopy).
  static constexpr bool kSeparate = false;
  static constexpr int kValues = kWidth;
  static constexpr int kKeyStages = kStages;
  static constexpr int kValueStages = 0;
  static constexpr int kKeyBytes = kStageBytes;
  static constexpr int kValueBytes = kStageBytes;
  // Offsets in shared memory, in bytes.
  static constexpr int kQuery = 0;
  static constexpr int kRounded = kQuery + kParts * kQueryTile;  // bf16 P [8, 128], in two tiles of 64 keys
  static constexpr int kStage = (kRounded + kBuffers * (kPair ? kMessageStride : 2 * kQueryTile) + 1023) / 1024 * 1024;
  static constexpr int kScales = kStage + kStages * kStageBytes;                     // of a stage: u8 [128]
  static constexpr int kWeights = kScales + (kFp8 ? kStages * kForwardKeys : 0);     // f32 P^T [128, 8]
  static constexpr int kMaxima = kWeights + kOwnBuffers * kForwardKeys * kRows * 4;  // f32 [warps, 8]
  static constexpr int kAfterMaxima = kMaxima + kOwnBuffers * kWarps * kRows * 4;
  static constexpr int kDecays = kPair ? kRounded + 2 * kQueryTile : kAfterMaxima;            // f32 [8]
  static constexpr int kGreatest = kDecays + kOwnBuffers * kRows * 4;                         // f32 [8]
  static constexpr int kPassedTotals = kGreatest + kRows * 4;                                 // f32 [8], with kPair
  static constexpr int kTotals = kPair ? kAfterMaxima : kGreatest + kOwnBuffers * kRows * 4;  // f32 [8]
  static constexpr int kOut = kWeights;  // bf16 [8, head_dim], without kFp8
  static constexpr int kBarriers = kTotals + kRows * 4;
  static constexpr int kItems = kBarriers + 256;  // two slots for items
  static constexpr int kSharedBytes = kItems + 64;
  [[nodiscard]] __device__ static int stage_at(int place) { return kStage + place * kStageBytes; }
  [[nodiscard]] __device__ static int scales_at(int place) { return kScales + place * kForwardKeys; }
};

}  // namespace hone
