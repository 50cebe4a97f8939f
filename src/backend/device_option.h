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
inline constexpr std::string_view kDeviceHelp = "Where to run; auto: the GPU where there is one";

struct GemmOptions {
  bool tune_gemm = false;
  std::string gemm_table;

  template <class Visitor>
  void fields(Visitor& v) {
    v("tune_gemm", tune_gemm, "Try the algorithms of every matrix product on the GPU and keep the fastest");
    v("gemm_table", gemm_table, "CSV of tuned products; unset: in $HONE_CACHE or ~/.cache/hone, read if it is there");
  }

  [[nodiscard]] GemmTuning tuning() const {
    return {.mode = tune_gemm ? GemmTuning::Mode::search : GemmTuning::Mode::known, .table = gemm_table};
  }
};

}  // namespace hone
