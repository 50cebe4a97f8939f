// Broadcasts of another process to this process's GPU by NCCL. Calls do not block: the host asks whether they are done,
// and aborts the communicator if the other process is lost.
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "backend/cuda/check.h"
#include "backend/cuda/device.h"
#include "backend/cuda/nccl_library.h"
#include "backend/gpu_collective.h"
#include "core/error.h"

namespace hone {
namespace {

constexpr std::chrono::microseconds kPause{20};

class NcclReceiver final : public BroadcastReceiver {
 public:
  using GivesUp = std::function<bool()>;

  NcclReceiver(const NcclLibrary& nccl, CudaDevice& gpu, const NcclId& id, int rank, int size, const GivesUp& gives_up)
      : nccl_(nccl), gpu_(gpu) {
    check_cuda(cudaSetDevice(gpu_.ordinal()), "cudaSetDevice");
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    try {
      join(id, rank, size, gives_up);
    } catch (...) {
      abort();
      (void)cudaStreamDestroy(stream_);
      throw;
    }
  }
  NcclReceiver(const NcclReceiver&) = delete;
  NcclReceiver& operator=(const NcclReceiver&) = delete;
  ~NcclReceiver() override {
    abort();
    (void)cudaStreamDestroy(stream_);
  }

  void receive(std::byte* data, std::size_t bytes, int root, const GivesUp& gives_up) override {
    if (comm_ == nullptr) throw Error("nccl", "the communicator has been given up", "make a new one");
    gpu_.synchronize();
    run(
        "ncclBroadcast", [&] { return nccl_.broadcast(data, data, bytes, kNcclUint8, root, comm_, stream_); },
        gives_up);
  }

 private:
  // Makes the communicator and sums a number over its ranks, as the trainer does.
  void join(const NcclId& id, int rank, int size, const GivesUp& gives_up) {
    if (nccl_.init_config == nullptr) NcclLibrary::throw_missing("ncclCommInitRankConfig");
    NcclConfig config{.blocking = 0};
    nccl_.check(nccl_.init_config(&comm_, size, id, rank, &config), "ncclCommInitRankConfig", true);
    wait_for_call("ncclCommInitRankConfig", gives_up);
    Buffer one(gpu_, sizeof(float));
    gpu_.synchronize();
    run(
        "ncclAllReduce",
        [&] { return nccl_.all_reduce(one.data(), one.data(), 1, kNcclFloat, kNcclSum, comm_, stream_); }, gives_up);
  }

  template <class Call>
  void run(std::string_view name, const Call& call, const GivesUp& gives_up) {
    nccl_.check(call(), name, true);
    wait_for_call(name, gives_up);
    for (;;) {
      const cudaError_t status = cudaStreamQuery(stream_);
      if (status == cudaSuccess) return;
      if (status != cudaErrorNotReady) check_cuda(status, name);
      (void)cudaGetLastError();  // forgets "not ready", which the check of the next launch would report
      pause(name, gives_up);
    }
  }

  // Waits until NCCL has submitted the work of a call.
  void wait_for_call(std::string_view name, const GivesUp& gives_up) {
    for (;;) {
      int status = 0;
      nccl_.check(nccl_.async_error(comm_, &status), "ncclCommGetAsyncError");
      if (status != kNcclInProgress) return nccl_.check(status, name);
      pause(name, gives_up);
    }
  }

  void pause(std::string_view name, const GivesUp& gives_up) {
    int status = 0;
    const bool failed = nccl_.async_error(comm_, &status) != 0 || (status != 0 && status != kNcclInProgress);
    if (failed || gives_up()) {
      abort();
      throw Error(name,
                  failed ? text_of("failed: ", nccl_.error_text(status)) : "was given up: the trainer is lost or late");
    }
    std::this_thread::sleep_for(kPause);
  }

  void abort() {
    if (comm_ != nullptr) (void)nccl_.abort(comm_);
    comm_ = nullptr;
  }

  const NcclLibrary nccl_;
  CudaDevice& gpu_;
  cudaStream_t stream_ = nullptr;
  NcclComm comm_ = nullptr;
};

}  // namespace

BroadcastBackend gpu_broadcasts(Device& gpu) {
  auto& device = static_cast<CudaDevice&>(gpu);
  std::optional<NcclLibrary> opened;
  std::exception_ptr error;
  try {
    opened.emplace();
  } catch (const Error&) {
    error = std::current_exception();
  }
  const auto library = [opened, error] {
    if (error) std::rethrow_exception(error);
    return *opened;
  };
  const auto make_id = [library] {
    const NcclLibrary nccl = library();
    NcclId made{};
    nccl.check(nccl.get_id(&made), "ncclGetUniqueId");
    BroadcastBackend::Id id{};
    std::memcpy(id.data(), made.bytes, sizeof made.bytes);
    return id;
  };
  const auto join = [library, &device](const BroadcastBackend::Id& given, int rank, int size,
                                       const std::function<bool()>& gives_up) -> std::unique_ptr<BroadcastReceiver> {
    NcclId id{};
    std::memcpy(id.bytes, given.data(), sizeof id.bytes);
    return std::make_unique<NcclReceiver>(library(), device, id, rank, size, gives_up);
  };
  return {.make_id = make_id, .join = join};
}

}  // namespace hone
