// Options of commands that select the device and the GEMM algorithms.
#pragma once

#include <string>
#include <string_view>

#include "backend/device.h"
#include "backend/gemm_tuning.h"
#include "core/options.h"

namespace hone {

template <>
inline constexpr EnumTable kEnumTable<DeviceChoice>{.names = "auto|cpu|cuda", .aliases = "gpu=cuda"};

// Help text of the option "device": v("device", device, kDeviceHelp).
inline constexpr std::string_view kDeviceHelp = "Where to run; auto is the GPU if there is one";

struct GemmOptions {
  bool tune_gemm = false;
  std::string gemm_table;

  template <class Visitor>
  void fields(Visitor& v) {
    v("tune_gemm", tune_gemm, "Try the algorithms of every GEMM on the GPU and keep the fastest");
    v("gemm_table", gemm_table, "CSV of tuned GEMMs; unset: the one in $HONE_CACHE or ~/.cache/hone, if it exists");
  }

  [[nodiscard]] GemmTuning tuning() const {
    return {.mode = tune_gemm ? GemmTuning::Mode::kSearch : GemmTuning::Mode::kKnown, .table = gemm_table};
  }
};

}  // namespace hone
