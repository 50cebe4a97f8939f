// The GPU's language for kernels, under CUDA's names: bf16, intrinsics, collectives of a warp, and functions that are
// instructions of PTX on NVIDIA's GPUs. Kernels that use nothing else are portable: the same source compiles for
// CUDA and, with HONE_HIP, for HIP.
//
// A warp is 32 lanes on every GPU. On one whose waves have 64 lanes, a wave is two warps, which never exchange anything
// but through shared memory. The order of every sum is therefore the same on all GPUs.
#pragma once

#ifdef HONE_HIP
#include "backend/hip/kernel.cuh"
#else
#include "backend/cuda/kernel.cuh"
#endif
