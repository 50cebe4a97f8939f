#include "backend/gemm_tuning.h"

#include "core/log.h"
#ifdef HONE_CUDA
#include "backend/cuda/device.h"
#endif

namespace hone {

void set_gemm_tuning(Device& device, const GemmTuning& tuning) {
#ifdef HONE_CUDA
  if (device.kind() == DeviceKind::cuda) {
    device.synchronize();
    static_cast<CudaDevice&>(device).cublas().set_tuning(tuning);
    return;
  }
#endif
  (void)device;
  if (tuning.mode == GemmTuning::Mode::search) log_once("tune_gemm: the host's matrix product has one algorithm");
}

}  // namespace hone
