// Runtime library of the GPU that the build is for, under CUDA's names: that of CUDA or, with HONE_HIP, that of HIP.
#pragma once

#ifdef HONE_HIP
#include "backend/hip/runtime.h"
#else
#include <cuda_runtime_api.h>
#endif
