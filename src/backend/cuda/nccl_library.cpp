#include "backend/cuda/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "backend/cuda/gpu_library.h"
#include "core/error.h"

namespace hone {
namespace {

#ifdef HONE_HIP
constexpr std::string_view kName = "librccl.so.1";  // has the functions of NCCL
constexpr std::string_view kAdvice = "install RCCL, or set LD_LIBRARY_PATH to its folder";
#else
constexpr std::string_view kName = "libnccl.so.2";
constexpr std::string_view kAdvice =
    "install NCCL (libnccl2), or set LD_LIBRARY_PATH to its folder, such as that of pip's nvidia-nccl-cu13";
#endif

void* open_library() {
  // Multicast over NVLink adds in the switch, in another order than the ranks.
  ::setenv("NCCL_NVLS_ENABLE", "0", 0);
  return open_gpu_library(kName, "nccl", kAdvice);
}

}  // namespace

NcclLibrary::NcclLibrary() : library_(open_library()) {
  bind(get_version, "ncclGetVersion");
  bind(get_id, "ncclGetUniqueId");
  bind(init, "ncclCommInitRank");
  bind(init_config, "ncclCommInitRankConfig", false);
  bind(abort, "ncclCommAbort");
  bind(async_error, "ncclCommGetAsyncError");
  bind(error_text, "ncclGetErrorString");
  bind(all_reduce, "ncclAllReduce");
  bind(reduce, "ncclReduce");
  bind(broadcast, "ncclBroadcast");
  bind(send, "ncclSend");
  bind(receive, "ncclRecv");
  bind(group_start, "ncclGroupStart");
  bind(group_end, "ncclGroupEnd");
}

void NcclLibrary::check(int status, std::string_view call, bool may_continue) const {
  if (status == 0 || (may_continue && status == kNcclInProgress)) return;
  throw Error("nccl", text_of(call, ": ", error_text(status)), "NCCL_DEBUG=WARN in the environment says more");
}

void NcclLibrary::throw_missing(std::string_view name) {
  throw Error("nccl", text_of(kName, " has no ", name), "install a newer one");
}

template <class Function>
void NcclLibrary::bind(Function& function, const char* name, bool is_required) {
  function = reinterpret_cast<Function>(::dlsym(library_, name));
  if (function == nullptr && is_required) throw_missing(name);
}

}  // namespace hone
