#include "backend/gemm_tuning.h"

#include "backend/gpu.h"
#include "core/log.h"

namespace hone {

void set_gemm_tuning(Device& device, const GemmTuning& tuning) {
  if (device.kind() == DeviceKind::kCuda) return set_gpu_gemm_tuning(device, tuning);
  if (tuning.mode == GemmTuning::Mode::kSearch)
    log_once("tune_gemm: has no effect on the CPU, whose GEMM has one algorithm");
}

}  // namespace hone
