// Registration of hone's operations. Each operation has a folder, which the build finds.
#pragma once

#include "program/kernel.h"
#include "program/op.h"

namespace hone {

using RegistryOf_ops = OpRegistry;
using RegistryOf_ops_cpu = KernelRegistry;
using RegistryOf_ops_cuda = KernelRegistry;

void register_all_ops(OpRegistry& registry);           // generated
void register_all_ops_cpu(KernelRegistry& registry);   // generated
void register_all_ops_cuda(KernelRegistry& registry);  // generated; no_cuda.cpp in a build without CUDA

// Fills op_registry() and kernel_registry(). Later calls do nothing.
void register_operations();

}  // namespace hone
