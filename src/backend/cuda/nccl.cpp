// Collective operations between GPUs by NCCL, or RCCL in a build for HIP, which is opened at run time.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/device.h"
#include "backend/cuda/nccl_library.h"
#include "backend/gpu_collective.h"
#include "core/error.h"
#include "core/job_log.h"
#include "system/launcher.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;

int nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kNcclFloat;
    case DType::kBf16:
      return kNcclBfloat16;
    case DType::kF64:
      return kNcclDouble;
    default:
      throw Defect(text_of("no sums over ranks for the dtype ", name_of(dtype)));
  }
}

// Watches the other ranks while the GPU may wait for them: an operation of NCCL never returns if a rank has ended.
// Calls give_up() once, in a separate thread, if a rank is lost or the operation takes longer than the limit.
class LossWatch {
 public:
  LossWatch(const Peers& peers, std::function<void()> give_up)
      : peers_(peers), give_up_(std::move(give_up)), thread_([this] { run(); }) {}
  LossWatch(const LossWatch&) = delete;
  LossWatch& operator=(const LossWatch&) = delete;
  ~LossWatch() {
    ends_ = true;
    thread_.join();
  }

  // Operations are submitted. The limit counts from the last ones: the host submits none while it waits for the GPU.
  void begin() {
    since_ = Clock::now().time_since_epoch().count();
    pending_ = true;
  }
  void end() { pending_ = false; }
  [[nodiscard]] bool has_given_up() const { return given_up_; }

 private:
  static constexpr auto kLook = std::chrono::milliseconds(100);
  static constexpr auto kGrace = std::chrono::seconds(5);  // for operations that all ranks had begun
  static constexpr auto kEnd = std::chrono::seconds(30);   // for the GPU to return after giving up

  void run() {
    Clock::time_point lost = Clock::time_point::max();
    for (; !ends_; std::this_thread::sleep_for(kLook)) {
      if (!pending_) {
        lost = Clock::time_point::max();
        continue;
      }
      const Clock::time_point now = Clock::now();
      const bool late = now - Clock::time_point(Clock::duration(since_.load())) > peers_.limits().answer;
      if (lost == Clock::time_point::max() && (late || peers_.has_lost_one())) lost = now;
      if (lost == Clock::time_point::max()) continue;
      if (!given_up_ && (late || now - lost > kGrace)) {
        given_up_ = true;
        give_up_();
      }
      if (given_up_ && now - lost > kGrace + kEnd) {
        log_error("hone: error: a rank of the job was lost, and the GPU still waits for it; the job ends");
        std::_Exit(kExitLostRank);
      }
    }
  }

  const Peers& peers_;
  std::function<void()> give_up_;
  std::atomic<bool> ends_{false}, pending_{false}, given_up_{false};
  std::atomic<Clock::rep> since_{0};
  std::thread thread_;
};

class GpuCollective final : public Collective {
 public:
  GpuCollective(CudaDevice& gpu, Peers& peers, std::vector<int> group)
      : Collective(peers, std::move(group)), gpu_(gpu), stream_(gpu.stream()), comm_(connect()) {
    watch_.emplace(peers, [this] {
      cudaSetDevice(gpu_.ordinal());  // of the watching thread
      nccl_.abort(comm_);
    });
  }

  void all_reduce(std::byte* data, DType dtype, std::size_t count) override {
    submit("ncclAllReduce",
           [&] { return nccl_.all_reduce(data, data, count, nccl_type(dtype), kNcclSum, comm_, stream_); });
  }

  void reduce_scatter(std::byte* data, DType dtype, std::span<const ByteRange> parts) override {
    // Parts may have different sizes, which ncclReduceScatter does not support.
    submit_each(
        "ncclReduce", parts,
        [&](int root, std::byte* part, std::size_t bytes) {
          return nccl_.reduce(part, part, bytes / size_of(dtype), nccl_type(dtype), kNcclSum, root, comm_, stream_);
        },
        data);
  }

  void all_gather(std::byte* data, std::span<const ByteRange> parts) override {
    submit_each(
        "ncclBroadcast", parts,
        [&](int root, std::byte* part, std::size_t bytes) {
          return nccl_.broadcast(part, part, bytes, kNcclUint8, root, comm_, stream_);
        },
        data);
  }

  void all_to_all(const std::byte* from, std::span<const ByteRange> sent, std::byte* to,
                  std::span<const ByteRange> received) override {
    const auto own = static_cast<std::size_t>(rank());
    copy(to + received[own].begin, from + sent[own].begin, sent[own].end - sent[own].begin);
    together([&] {
      for (std::size_t r = 0; r < sent.size(); ++r) {
        if (r == own) continue;
        send_and_receive(static_cast<int>(r), {from + sent[r].begin, from + sent[r].end},
                         {to + received[r].begin, to + received[r].end});
      }
    });
  }

  void broadcast(std::byte* data, std::size_t bytes, int root) override {
    submit("ncclBroadcast", [&] { return nccl_.broadcast(data, data, bytes, kNcclUint8, root, comm_, stream_); });
  }

  void exchange(int rank, std::span<const std::byte> out, std::span<std::byte> in) override {
    together([&] { send_and_receive(rank, out, in); });
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes == 0) return;
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "a copy on the GPU");
  }

  void together(const std::function<void()>& operations) override {
    submit("ncclGroupStart", nccl_.group_start);
    operations();
    nccl_.check(nccl_.group_end(), "ncclGroupEnd");
  }

  void start(int slot, const std::function<void()>& operations) override {
    if (side_ == nullptr) check_cuda(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking), "cudaStreamCreate");
    Slot& events = slots_[slot];
    if (events.started == nullptr) {
      check_cuda(cudaEventCreateWithFlags(&events.started, cudaEventDisableTiming), "cudaEventCreate");
      check_cuda(cudaEventCreateWithFlags(&events.done, cudaEventDisableTiming), "cudaEventCreate");
    }
    check_cuda(cudaEventRecord(events.started, gpu_.stream()), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(side_, events.started, 0), "cudaStreamWaitEvent");
    stream_ = side_;
    operations();
    stream_ = gpu_.stream();
    check_cuda(cudaEventRecord(events.done, side_), "cudaEventRecord");
  }

  void wait(int slot) override {
    const auto found = slots_.find(slot);
    HONE_ASSERT(found != slots_.end(), "no operation was started in slot ", slot);
    check_cuda(cudaStreamWaitEvent(gpu_.stream(), found->second.done, 0), "cudaStreamWaitEvent");
  }

  void expect() override {
    if (watch_->has_given_up()) peers().throw_lost();
    watch_->begin();
  }

  void check() override {
    watch_->end();
    if (watch_->has_given_up()) peers().throw_lost();
  }

 private:
  // Part of operations that run together. Empty ranges are left out, on both ranks.
  void send_and_receive(int rank, std::span<const std::byte> out, std::span<std::byte> in) {
    if (!out.empty()) nccl_.check(nccl_.send(out.data(), out.size(), kNcclUint8, rank, comm_, stream_), "ncclSend");
    if (!in.empty()) nccl_.check(nccl_.receive(in.data(), in.size(), kNcclUint8, rank, comm_, stream_), "ncclRecv");
  }

  // The beginning and the end of work next to the GPU's stream.
  struct Slot {
    cudaEvent_t started = nullptr;
    cudaEvent_t done = nullptr;
  };

  // The id of the communicator, which the first rank of the group makes, reaches the others over their connections.
  NcclComm connect() {
    const std::vector<std::string> gpus = peers().gather(bus_of_gpu());
    for (std::size_t r = 0; r < gpus.size(); ++r) {
      const int own = peers().rank();
      const bool is_same = static_cast<int>(r) != own && gpus[r] == gpus[static_cast<std::size_t>(own)] &&
                           peers().name_of(static_cast<int>(r)).ends_with(host_suffix());
      if (is_same) {
        throw Error("device", text_of("ranks ", own, " and ", r, " have the same GPU"),
                    "start as many processes on a machine as it has GPUs, or set LOCAL_RANK");
      }
    }
    NcclId id{};
    if (rank() == 0) nccl_.check(nccl_.get_id(&id), "ncclGetUniqueId");
    const std::vector<std::string> ids = peers().gather({id.bytes, sizeof(id.bytes)});
    std::memcpy(id.bytes, ids[static_cast<std::size_t>(job_rank(0))].data(), sizeof(id.bytes));
    NcclComm comm = nullptr;
    nccl_.check(nccl_.init(&comm, size(), id, rank()), "ncclCommInitRank");
    return comm;
  }

  [[nodiscard]] std::string bus_of_gpu() const {
    std::array<char, 32> bus{};
    check_cuda(cudaDeviceGetPCIBusId(bus.data(), bus.size(), gpu_.ordinal()), "cudaDeviceGetPCIBusId");
    return bus.data();
  }
  [[nodiscard]] std::string host_suffix() const {
    const std::string name = peers().name_of(peers().rank());
    return name.substr(name.find('('));
  }

  template <class Call>
  void submit(std::string_view name, const Call& call) {
    expect();
    nccl_.check(call(), name);
  }

  template <class Call>
  void submit_each(std::string_view name, std::span<const ByteRange> parts, const Call& call, std::byte* data) {
    submit("ncclGroupStart", nccl_.group_start);
    for (std::size_t r = 0; r < parts.size(); ++r) {
      const std::size_t bytes = parts[r].end - parts[r].begin;
      if (bytes > 0) nccl_.check(call(static_cast<int>(r), data + parts[r].begin, bytes), name);
    }
    nccl_.check(nccl_.group_end(), "ncclGroupEnd");
  }

  NcclLibrary nccl_;
  CudaDevice& gpu_;
  cudaStream_t stream_;          // of the operations: the GPU's, or side_ within start()
  cudaStream_t side_ = nullptr;  // created at its first use
  std::map<int, Slot> slots_;
  NcclComm comm_;
  std::optional<LossWatch> watch_;  // last: it ends before the rest
};

}  // namespace

std::unique_ptr<Collective> make_gpu_collective(Device& gpu, Peers& peers, std::vector<int> group) {
  return std::make_unique<GpuCollective>(static_cast<CudaDevice&>(gpu), peers, std::move(group));
}

}  // namespace hone
