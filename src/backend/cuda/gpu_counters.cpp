// Counts events by CUPTI's range profiler: each launch is a range, and the caller repeats the work for each pass.
//
// The names of the ranges are the numbers of the launches. Their kernels are known from a callback of the driver's
// launch functions, which counts them in the same order.
#include "backend/gpu_counters.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cupti.h"
#include "backend/cuda/device.h"
#include "core/error.h"

#ifdef HONE_HAS_CUPTI

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace hone {
namespace {

constexpr const char* kTimeMetric = "gpu__time_duration.sum";

// An event and the metric of CUPTI that gives it.
struct CountedMetric {
  std::string_view event;
  const char* metric;
  bool is_percent;  // of the kernel's time: the event is the same share of its nanoseconds
};
constexpr std::array<CountedMetric, 9> kMetrics{{
    {"gpu_ns", kTimeMetric, false},
    {"dram_read_bytes", "dram__bytes_read.sum", false},
    {"dram_written_bytes", "dram__bytes_write.sum", false},
    {"dram_peak_ns", "dram__throughput.avg.pct_of_peak_sustained_elapsed", true},
    {"tensor_active_ns", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", true},
    {"occupancy_ns", "sm__warps_active.avg.pct_of_peak_sustained_active", true},
    {"l2_sectors", "lts__t_sectors.sum", false},
    {"l2_hits", "lts__t_sectors_lookup_hit.sum", false},
    {"gpu_instructions", "smsp__inst_executed.sum", false},
}};

// Parameters of a function of CUPTI, all fields 0 but the size. NOLINTBEGIN(bugprone-macro-parentheses)
#define HONE_CUPTI_PARAMETERS(type, name) \
  type name{};                            \
  name.structSize = type##_STRUCT_SIZE
// NOLINTEND(bugprone-macro-parentheses)

// Names the kernels that the process launches, in order, while it exists.
class LaunchLog {
 public:
  explicit LaunchLog(const CuptiLibrary& cupti) : cupti_(cupti) {
    cupti_.check(cupti_.cuptiSubscribe(&subscriber_, &on_launch, this), "cuptiSubscribe");
    for (const CUpti_CallbackId id :
         {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
          CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
          CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz}) {
      (void)cupti_.cuptiEnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, id);
    }
  }
  LaunchLog(const LaunchLog&) = delete;
  LaunchLog& operator=(const LaunchLog&) = delete;
  ~LaunchLog() { (void)cupti_.cuptiUnsubscribe(subscriber_); }

  std::vector<std::string> kernels;

 private:
  static void CUPTIAPI on_launch(void* self, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
    const auto* call = static_cast<const CUpti_CallbackData*>(data);
    if (call->callbackSite != CUPTI_API_ENTER) return;
    static_cast<LaunchLog*>(self)->kernels.emplace_back(call->symbolName != nullptr ? call->symbolName : "");
  }

  const CuptiLibrary& cupti_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
};

CUcontext current_context() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &function, 12000, cudaEnableDefault, &found),
             "cudaGetDriverEntryPointByVersion");
  CUcontext context = nullptr;
  HONE_ASSERT(found == cudaDriverEntryPointSuccess, "the driver has no cuCtxGetCurrent");
  (void)reinterpret_cast<CUresult (*)(CUcontext*)>(function)(&context);
  HONE_ASSERT(context != nullptr, "the device has no context");
  return context;
}

// CUPTI's description of a chip's metrics.
class MetricHost {
 public:
  MetricHost(const CuptiLibrary& cupti, int ordinal, const std::vector<std::uint8_t>& available) : cupti_(cupti) {
    HONE_CUPTI_PARAMETERS(CUpti_Device_GetChipName_Params, chip);
    chip.deviceIndex = static_cast<std::size_t>(ordinal);
    cupti.check(cupti.cuptiDeviceGetChipName(&chip), "cuptiDeviceGetChipName");
    HONE_CUPTI_PARAMETERS(CUpti_Profiler_Host_Initialize_Params, host);
    host.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    host.pChipName = chip.pChipName;
    host.pCounterAvailabilityImage = available.data();
    cupti.check(cupti.cuptiProfilerHostInitialize(&host), "cuptiProfilerHostInitialize");
    host_ = host.pHostObject;
  }
  MetricHost(const MetricHost&) = delete;
  MetricHost& operator=(const MetricHost&) = delete;
  ~MetricHost() {
    HONE_CUPTI_PARAMETERS(CUpti_Profiler_Host_Deinitialize_Params, end);
    end.pHostObject = host_;
    (void)cupti_.cuptiProfilerHostDeinitialize(&end);
  }

  [[nodiscard]] bool has(const char* metric) const {
    HONE_CUPTI_PARAMETERS(CUpti_Profiler_Host_GetMetricProperties_Params, query);
    query.pHostObject = host_;
    query.pMetricName = metric;
    return cupti_.cuptiProfilerHostGetMetricProperties(&query) == CUPTI_SUCCESS;
  }

  // Returns the settings of the counters for these metrics, of all passes.
  [[nodiscard]] std::vector<std::uint8_t> config(std::vector<const char*>& metrics) const {
    HONE_CUPTI_PARAMETERS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
    add.pHostObject = host_;
    add.ppMetricNames = metrics.data();
    add.numMetrics = metrics.size();
    cupti_.check(cupti_.cuptiProfilerHostConfigAddMetrics(&add), "cuptiProfilerHostConfigAddMetrics");
    HONE_CUPTI_PARAMETERS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
    size.pHostObject = host_;
    cupti_.check(cupti_.cuptiProfilerHostGetConfigImageSize(&size), "cuptiProfilerHostGetConfigImageSize");
    std::vector<std::uint8_t> image(size.configImageSize);
    HONE_CUPTI_PARAMETERS(CUpti_Profiler_Host_GetConfigImage_Params, get);
    get.pHostObject = host_;
    get.configImageSize = image.size();
    get.pConfigImage = image.data();
    cupti_.check(cupti_.cuptiProfilerHostGetConfigImage(&get), "cuptiProfilerHostGetConfigImage");
    return image;
  }

  // Returns the values of the metrics in a range of the decoded counters.
  [[nodiscard]] std::vector<double> values(const std::vector<std::uint8_t>& counted, std::size_t range,
                                           std::vector<const char*>& metrics) const {
    std::vector<double> values(metrics.size());
    HONE_CUPTI_PARAMETERS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, evaluate);
    evaluate.pHostObject = host_;
    evaluate.pCounterDataImage = counted.data();
    evaluate.counterDataImageSize = counted.size();
    evaluate.rangeIndex = range;
    evaluate.ppMetricNames = metrics.data();
    evaluate.numMetrics = metrics.size();
    evaluate.pMetricValues = values.data();
    cupti_.check(cupti_.cuptiProfilerHostEvaluateToGpuValues(&evaluate), "cuptiProfilerHostEvaluateToGpuValues");
    return values;
  }

  // Returns the number of the launch of a range.
  [[nodiscard]] std::size_t launch_of(const std::vector<std::uint8_t>& counted, std::size_t range) const {
    HONE_CUPTI_PARAMETERS(CUpti_Profiler_Host_GetRangeName_Params, name);
    name.pCounterDataImage = counted.data();
    name.counterDataImageSize = counted.size();
    name.rangeIndex = range;
    name.delimiter = "/";
    cupti_.check(cupti_.cuptiProfilerHostGetRangeName(&name), "cuptiProfilerHostGetRangeName");
    const std::string_view text = name.pRangeName != nullptr ? name.pRangeName : "";
    std::size_t launch = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), launch);
    if (error != std::errc() || end != text.data() + text.size()) launch = range;
    std::free(const_cast<char*>(name.pRangeName));  // CUPTI allocates it for its caller
    return launch;
  }

 private:
  const CuptiLibrary& cupti_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
};

// A session of the range profiler on a context.
class RangeSession {
 public:
  RangeSession(const CuptiLibrary& cupti, CUcontext context) : cupti_(cupti) {
    HONE_CUPTI_PARAMETERS(CUpti_RangeProfiler_Enable_Params, enable);
    enable.ctx = context;
    cupti.check(cupti.cuptiRangeProfilerEnable(&enable), "cuptiRangeProfilerEnable");
    profiler_ = enable.pRangeProfilerObject;
  }
  RangeSession(const RangeSession&) = delete;
  RangeSession& operator=(const RangeSession&) = delete;
  ~RangeSession() {
    if (running_) {  // after an error, which another one must not hide
      HONE_CUPTI_PARAMETERS(CUpti_RangeProfiler_Stop_Params, stop);
      stop.pRangeProfilerObject = profiler_;
      (void)cupti_.cuptiRangeProfilerStop(&stop);
    }
    HONE_CUPTI_PARAMETERS(CUpti_RangeProfiler_Disable_Params, disable);
    disable.pRangeProfilerObject = profiler_;
    (void)cupti_.cuptiRangeProfilerDisable(&disable);
  }

  // Prepares for so many launches. `config` must outlive the session.
  void prepare(std::size_t launches, const std::vector<std::uint8_t>& config, std::vector<const char*>& metrics) {
    HONE_CUPTI_PARAMETERS(CUpti_RangeProfiler_GetCounterDataSize_Params, size);
    size.pRangeProfilerObject = profiler_;
    size.pMetricNames = metrics.data();
    size.numMetrics = metrics.size();
    size.maxNumOfRanges = launches;
    size.maxNumRangeTreeNodes = static_cast<std::uint32_t>(launches);
    cupti_.check(cupti_.cuptiRangeProfilerGetCounterDataSize(&size), "cuptiRangeProfilerGetCounterDataSize");
    counted_.assign(size.counterDataSize, 0);
    HONE_CUPTI_PARAMETERS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, image);
    image.pRangeProfilerObject = profiler_;
    image.counterDataSize = counted_.size();
    image.pCounterData = counted_.data();
    cupti_.check(cupti_.cuptiRangeProfilerCounterDataImageInitialize(&image),
                 "cuptiRangeProfilerCounterDataImageInitialize");
    HONE_CUPTI_PARAMETERS(CUpti_RangeProfiler_SetConfig_Params, set);
    set.pRangeProfilerObject = profiler_;
    set.configSize = config.size();
    set.pConfig = config.data();
    set.counterDataImageSize = counted_.size();
    set.pCounterDataImage = counted_.data();
    set.range = CUPTI_AutoRange;
    set.replayMode = CUPTI_UserReplay;
    set.maxRangesPerPass = launches;
    set.numNestingLevels = 1;
    set.minNestingLevel = 1;
    set.targetNestingLevel = 1;
    cupti_.check(cupti_.cuptiRangeProfilerSetConfig(&set), "cuptiRangeProfilerSetConfig");
  }

  void start() {
    HONE_CUPTI_PARAMETERS(CUpti_RangeProfiler_Start_Params, start);
    start.pRangeProfilerObject = profiler_;
    cupti_.check(cupti_.cuptiRangeProfilerStart(&start), "cuptiRangeProfilerStart");
    running_ = true;
  }

  // Ends a pass. Returns true if it was the last.
  bool stop() {
    running_ = false;
    HONE_CUPTI_PARAMETERS(CUpti_RangeProfiler_Stop_Params, stop);
    stop.pRangeProfilerObject = profiler_;
    cupti_.check(cupti_.cuptiRangeProfilerStop(&stop), "cuptiRangeProfilerStop");
    return stop.isAllPassSubmitted != 0;
  }

  // Returns the number of ranges, after the last pass.
  std::size_t decode() {
    HONE_CUPTI_PARAMETERS(CUpti_RangeProfiler_DecodeData_Params, decode);
    decode.pRangeProfilerObject = profiler_;
    cupti_.check(cupti_.cuptiRangeProfilerDecodeData(&decode), "cuptiRangeProfilerDecodeData");
    HONE_CUPTI_PARAMETERS(CUpti_RangeProfiler_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = counted_.data();
    info.counterDataImageSize = counted_.size();
    cupti_.check(cupti_.cuptiRangeProfilerGetCounterDataInfo(&info), "cuptiRangeProfilerGetCounterDataInfo");
    return info.numTotalRanges;
  }

  [[nodiscard]] const std::vector<std::uint8_t>& counted() const { return counted_; }

 private:
  const CuptiLibrary& cupti_;
  CUpti_RangeProfiler_Object* profiler_ = nullptr;
  std::vector<std::uint8_t> counted_;
  bool running_ = false;
};

class CuptiCounters final : public GpuCounters {
 public:
  explicit CuptiCounters(CudaDevice& gpu) : gpu_(gpu), log_(cupti_) {
    HONE_CUPTI_PARAMETERS(CUpti_Profiler_Initialize_Params, initialize);
    cupti_.check(cupti_.cuptiProfilerInitialize(&initialize), "cuptiProfilerInitialize");
    context_ = current_context();
    const std::vector<std::uint8_t> available = availability();
    host_ = std::make_unique<MetricHost>(cupti_, gpu.ordinal(), available);
    for (const CountedMetric& each : kMetrics) {
      if (!host_->has(each.metric)) continue;
      chosen_.push_back(each);
      metrics_.push_back(each.metric);
      names_.push_back(each.event);
    }
    if (names_.empty() || names_[0] != kMetrics[0].event)
      throw Error(std::string(kCuptiPlace), "this GPU does not count the time of kernels");
    config_ = host_->config(metrics_);
  }

  const std::vector<std::string_view>& names() const override { return names_; }
  std::size_t launches() const override { return log_.kernels.size(); }

  std::vector<KernelEvents> count(const std::function<void()>& work) override {
    log_.kernels.clear();
    work();
    gpu_.synchronize();
    const std::vector<std::string> kernels = log_.kernels;
    std::vector<KernelEvents> events;
    events.reserve(kernels.size());
    for (const std::string& kernel : kernels) events.push_back({.kernel = kernel, .counts = {}});
    if (kernels.empty()) throw Error(std::string(kCuptiPlace), "CUPTI reported no launch of a kernel");
    RangeSession session(cupti_, context_);
    session.prepare(kernels.size(), config_, metrics_);
    constexpr int kMostPasses = 32;
    bool done = false;
    for (int pass = 0; pass < kMostPasses && !done; ++pass) {
      log_.kernels.clear();
      session.start();
      work();
      gpu_.synchronize();
      done = session.stop();
      if (log_.kernels != kernels) {
        throw Error(std::string(kCuptiPlace),
                    text_of("a pass launched ", log_.kernels.size(), " kernels, the first run ", kernels.size()));
      }
    }
    if (!done) throw Error(std::string(kCuptiPlace), text_of("CUPTI asked for more than ", kMostPasses, " passes"));
    fill(session, events);
    return events;
  }

 private:
  // Fails if the driver refuses counters to this process.
  [[nodiscard]] std::vector<std::uint8_t> availability() const {
    HONE_CUPTI_PARAMETERS(CUpti_Profiler_GetCounterAvailability_Params, query);
    query.ctx = context_;
    cupti_.check(cupti_.cuptiProfilerGetCounterAvailability(&query), "cuptiProfilerGetCounterAvailability");
    std::vector<std::uint8_t> image(query.counterAvailabilityImageSize);
    query.pCounterAvailabilityImage = image.data();
    cupti_.check(cupti_.cuptiProfilerGetCounterAvailability(&query), "cuptiProfilerGetCounterAvailability");
    return image;
  }

  void fill(RangeSession& session, std::vector<KernelEvents>& events) {
    const std::size_t ranges = session.decode();
    if (ranges != events.size()) {
      throw Error(std::string(kCuptiPlace),
                  text_of("CUPTI counted ", ranges, " kernels of ", events.size(), " that were launched"));
    }
    for (std::size_t range = 0; range < ranges; ++range) {
      const std::size_t launch = host_->launch_of(session.counted(), range);
      if (launch >= events.size() || !events[launch].counts.empty()) {
        throw Error(std::string(kCuptiPlace), text_of("range ", range, " of CUPTI is launch ", launch));
      }
      std::vector<double> values = host_->values(session.counted(), range, metrics_);
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i])) values[i] = 0;
        if (chosen_[i].is_percent) values[i] *= values[0] / 100;  // the time, which is the first event
      }
      events[launch].counts = std::move(values);
    }
  }

  CudaDevice& gpu_;
  CuptiLibrary cupti_;
  LaunchLog log_;
  CUcontext context_ = nullptr;
  std::unique_ptr<MetricHost> host_;
  std::vector<CountedMetric> chosen_;
  std::vector<const char*> metrics_;  // of chosen_
  std::vector<std::string_view> names_;
  std::vector<std::uint8_t> config_;
};

}  // namespace

std::unique_ptr<GpuCounters> make_gpu_counters(Device& gpu) {
  return std::make_unique<CuptiCounters>(static_cast<CudaDevice&>(gpu));
}

}  // namespace hone

#else

namespace hone {

std::unique_ptr<GpuCounters> make_gpu_counters(Device&) {
  throw Error("hardware counters of the GPU", "this build of hone was made without CUPTI",
              "build it again where the CUDA toolkit has cupti_range_profiler.h");
}

}  // namespace hone

#endif
