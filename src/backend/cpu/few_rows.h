// GEMM of a few rows by a transposed matrix, such as a step of decoding, whose time is that of reading the matrix.
//
// A row of C is one pass over all of b, so that reading b is what takes time. Panels of 16 or 32 rows of b are read in
// place, transposed in registers 64 bytes at a time, and multiplied from there; while a panel is computed, the next one
// is fetched into the L2 cache in the order of its addresses. Each element is the chain over k of gemm() for these
// types, so that the bits are those of any number of rows.
#pragma once

#include <cstddef>

#include "backend/cpu/few_rows_kernels.h"
#include "backend/gemm.h"

namespace hone {

// Returns whether few_rows() computes `args`: few rows, b transposed and of whole blocks, nothing accumulated, and a
// kind of bf16 products other than AMX.
[[nodiscard]] bool is_few_rows(const GemmArgs& args);

// Requires is_few_rows(args).
void few_rows(const GemmArgs& args);

// The same with given kernels, which must fit the types; for tests.
void few_rows(const GemmArgs& args, const FewRowsKernels& kernels);

// Workspace of one thread that suffices for any smaller m and k.
[[nodiscard]] std::size_t few_rows_share(const GemmArgs& args);

}  // namespace hone
