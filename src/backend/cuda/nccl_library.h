// The functions of NCCL that are used, from the library that is opened at run time.
#pragma once

#include <cstddef>
#include <string_view>

#include "backend/gpu/runtime.h"

namespace hone {

// Types and numbers of nccl.h. The library keeps them, and the functions, compatible within version 2.
struct NcclId {
  char bytes[128];
};
using NcclComm = void*;
enum NcclType : int { kNcclUint8 = 1, kNcclFloat = 7, kNcclDouble = 8, kNcclBfloat16 = 9 };
inline constexpr int kNcclSum = 0;
inline constexpr int kNcclInProgress = 7;

// ncclConfig_t of NCCL 2.14, which later versions accept.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 1;  // 0: calls return kNcclInProgress, and async_error() says when they are done
  int unused = 0;    // padding in version 2.14
};

class NcclLibrary {
 public:
  // Throws Error if the library is not found. It changes the environment, so no other thread may read that meanwhile.
  NcclLibrary();

  // Throws Error if the status of a call is neither success nor, if `may_continue`, kNcclInProgress.
  void check(int status, std::string_view call, bool may_continue = false) const;

  // Throws the Error of a library without a function.
  [[noreturn]] static void throw_missing(std::string_view name);

  int (*get_version)(int*) = nullptr;
  int (*get_id)(NcclId*) = nullptr;
  int (*init)(NcclComm*, int ranks, NcclId, int rank) = nullptr;
  int (*init_config)(NcclComm*, int ranks, NcclId, int rank, NcclConfig*) = nullptr;  // null before NCCL 2.14
  int (*abort)(NcclComm) = nullptr;
  int (*async_error)(NcclComm, int* status) = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int type, int sum, NcclComm, cudaStream_t) = nullptr;
  int (*reduce)(const void*, void*, std::size_t, int type, int sum, int root, NcclComm, cudaStream_t) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int type, int root, NcclComm, cudaStream_t) = nullptr;
  int (*send)(const void*, std::size_t, int type, int peer, NcclComm, cudaStream_t) = nullptr;
  int (*receive)(void*, std::size_t, int type, int peer, NcclComm, cudaStream_t) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;

 private:
  template <class Function>
  void bind(Function& function, const char* name, bool is_required = true);

  void* library_;
};

}  // namespace hone
