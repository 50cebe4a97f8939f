// Values that options of the training commands choose from, with their names in recipes.
#pragma once

#include <cstdint>

#include "core/options.h"
#include "data/source.h"

namespace hone {

enum class TorchDtype : std::uint8_t { kAutomatic, kBfloat16, kFloat32 };
template <>
inline constexpr EnumTable kEnumTable<TorchDtype>{.names = "auto|bfloat16|float32", .not_yet = "float16|float8|int8"};

enum class OptimizerType : std::uint8_t { kAdamw, kAdamwBf16, kAdamw8bit, kPagedAdamw8bit, kPagedAdamw, kMuon, kSgd };
template <>
inline constexpr EnumTable kEnumTable<OptimizerType>{
    .names = "adamw_torch|adamw_bf16|adamw_8bit|paged_adamw_8bit|paged_adamw_32bit|muon|sgd",
    .aliases =
        "adamw_torch_fused=adamw_torch|adamw_bnb_8bit=adamw_8bit|paged_adamw_bnb_8bit=paged_adamw_8bit|"
        "paged_adamw=paged_adamw_32bit",
    .not_yet = "adafactor"};

enum class GradientType : std::uint8_t { kFloat32, kBfloat16 };
template <>
inline constexpr EnumTable kEnumTable<GradientType>{.names = "float32|bfloat16"};

// Schedule of evaluations or log lines.
enum class Interval : std::uint8_t { kNo, kSteps, kEpoch };
template <>
inline constexpr EnumTable kEnumTable<Interval>{.names = "no|steps|epoch"};

enum class SaveStrategy : std::uint8_t { kNo, kSteps, kEpoch, kBest };
template <>
inline constexpr EnumTable kEnumTable<SaveStrategy>{.names = "no|steps|epoch|best"};

enum class Recomputation : std::uint8_t { kOff, kOn, kAutomatic };
template <>
inline constexpr EnumTable kEnumTable<Recomputation>{.names = "false|true|auto"};

// Source of the layout of a run over processes: its keys, or a search for the fastest one.
enum class LayoutChoice : std::uint8_t { kKeys, kAutomatic, kSearch };
template <>
inline constexpr EnumTable kEnumTable<LayoutChoice>{.names = "keys|auto|search"};

enum class OnNonfinite : std::uint8_t { kStop, kSkip };
template <>
inline constexpr EnumTable kEnumTable<OnNonfinite>{.names = "stop|skip"};

enum class PackingStrategy : std::uint8_t { kBfd, kBfdSplit, kWrapped };
template <>
inline constexpr EnumTable kEnumTable<PackingStrategy>{.names = "bfd|bfd_split|wrapped", .not_yet = "ffd"};

// Choice of training sequences in pre-training: consecutive blocks, or windows at random positions.
enum class WindowSampling : std::uint8_t { kBlocks, kWindows };
template <>
inline constexpr EnumTable kEnumTable<WindowSampling>{.names = "blocks|windows"};
template <>
inline constexpr EnumTable kEnumTable<SampleBy>{.names = "document|paragraph|line"};

enum class SftLoss : std::uint8_t { kNll, kDft };
template <>
inline constexpr EnumTable kEnumTable<SftLoss>{.names = "nll|dft", .not_yet = "chunked_nll"};

}  // namespace hone
