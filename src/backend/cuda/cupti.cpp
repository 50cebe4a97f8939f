#include "backend/cuda/cupti.h"

#ifdef HONE_HAS_CUPTI

#include <dlfcn.h>

#include <string>

#include "backend/cuda/gpu_library.h"
#include "core/error.h"

namespace hone {
namespace {

std::string hint_for(CUptiResult status) {
  switch (status) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "run as root or with CAP_SYS_ADMIN, or let every user count: options nvidia "
             "NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d/nvidia.conf, then load the driver again";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "the host of this virtual machine must let the virtual GPU be profiled";
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
      return "use a whole GPU, not a MIG instance";
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
      return "switch off confidential computing";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      return "end the other profiler (ncu, nsys, cuda-gdb) of this process";
    default:
      return "";
  }
}

}  // namespace

CuptiLibrary::CuptiLibrary()
    : library_(open_gpu_library(
          "libcupti.so.13", kCuptiPlace,
          "set LD_LIBRARY_PATH to the folder of CUDA 13's CUPTI, such as that of pip's nvidia-cuda-cupti",
          {"extras/CUPTI/lib64", "lib64"})) {
// A member to assign to. NOLINTBEGIN(bugprone-macro-parentheses)
#define HONE_BIND(name)                                                 \
  name = reinterpret_cast<decltype(&::name)>(::dlsym(library_, #name)); \
  if (name == nullptr)                                                  \
  throw Error(std::string(kCuptiPlace), "libcupti.so.13 has no " #name, "install the CUPTI of CUDA 13")
  // NOLINTEND(bugprone-macro-parentheses)
  HONE_CUPTI_FUNCTIONS(HONE_BIND);
#undef HONE_BIND
}

void CuptiLibrary::check(CUptiResult status, std::string_view call) const {
  if (status == CUPTI_SUCCESS) return;
  const char* name = nullptr;
  if (cuptiGetResultString(status, &name) != CUPTI_SUCCESS || name == nullptr) name = "unknown error";
  const bool refused = status == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  throw Error(
      std::string(kCuptiPlace),
      text_of(refused ? "the driver gives them to administrators only (ERR_NVGPUCTRPERM): " : "", call, ": ", name),
      hint_for(status));
}

}  // namespace hone

#endif
