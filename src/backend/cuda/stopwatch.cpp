#include "backend/cuda/check.h"
#include "backend/cuda/device.h"
#include "backend/gpu.h"

namespace hone {
namespace {

class CudaStopwatch final : public Stopwatch {
 public:
  explicit CudaStopwatch(cudaStream_t stream) : stream_(stream) {}
  CudaStopwatch(const CudaStopwatch&) = delete;
  CudaStopwatch& operator=(const CudaStopwatch&) = delete;
  ~CudaStopwatch() override {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  void mark() override {
    if (marks_ == events_.size()) {
      cudaEvent_t event = nullptr;
      check_cuda(cudaEventCreate(&event), "cudaEventCreate");
      events_.push_back(event);
    }
    check_cuda(cudaEventRecord(events_[marks_++], stream_), "cudaEventRecord");
  }
  std::vector<double> read() override {
    check_cuda(cudaStreamSynchronize(stream_), "work on the GPU");
    std::vector<double> seconds;
    for (std::size_t i = 1; i < marks_; ++i) {
      float milliseconds = 0;
      check_cuda(cudaEventElapsedTime(&milliseconds, events_[i - 1], events_[i]), "cudaEventElapsedTime");
      seconds.push_back(static_cast<double>(milliseconds) * 1e-3);
    }
    marks_ = 0;
    return seconds;
  }

 private:
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;
  std::size_t marks_ = 0;  // number of events recorded since the last read
};

}  // namespace

std::unique_ptr<Stopwatch> make_gpu_stopwatch(Device& gpu) {
  return std::make_unique<CudaStopwatch>(static_cast<CudaDevice&>(gpu).stream());
}

}  // namespace hone
