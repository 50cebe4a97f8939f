// Selection of GEMM algorithms on devices whose library offers several.
#pragma once

#include <cstdint>
#include <string>

#include "backend/device.h"

namespace hone {

struct GemmTuning {
  enum class Mode : std::uint8_t {
    kKnown,   // the algorithm in the table; the library's default for a GEMM that is not in it
    kSearch,  // as known, but a GEMM that is not in the table is tuned at its first use and added
    kOff,     // the library's default
  };
  Mode mode = Mode::kKnown;
  std::string table;  // CSV file; empty: GemmTable::default_path()
};

// Sets the selection for the following GEMMs; recorded launches do not change. The CPU has one algorithm and ignores
// the setting. Throws Error if a table was named and cannot be read.
void set_gemm_tuning(Device& device, const GemmTuning& tuning);

}  // namespace hone
