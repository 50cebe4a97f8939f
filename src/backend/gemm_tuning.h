// How matrix products find their algorithm, where a device's library has several.
#pragma once

#include <cstdint>
#include <string>

#include "backend/device.h"

namespace hone {

struct GemmTuning {
  enum class Mode : std::uint8_t {
    known,   // the one that was measured to be fastest, where the table has the product; else the library's choice
    search,  // measured at the first use, where the table does not have the product, and written to it
    off,     // the library's choice
  };
  Mode mode = Mode::known;
  std::string table;  // CSV; empty: in the cache folder (backend/gemm_table.h)
};

// For products from now on; what has been recorded stays as it is. The host's products have one algorithm: nothing
// happens. Throws Error where a table that is named is none.
void set_gemm_tuning(Device& device, const GemmTuning& tuning);

}  // namespace hone
