// The functions of CUPTI that count events of kernels (its range profiler), opened at run time.
#pragma once

#if __has_include(<cupti_range_profiler.h>) && __has_include(<cupti_profiler_host.h>)
#define HONE_HAS_CUPTI 1

#include <cuda.h>
#include <cupti_callbacks.h>
#include <cupti_driver_cbid.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_result.h>
#include <cupti_target.h>

#include <string_view>

namespace hone {

inline constexpr std::string_view kCuptiPlace = "hardware counters of the GPU";  // of errors

class CuptiLibrary {
 public:
  // Throws Error if the library is not found or is older than CUDA 13's.
  CuptiLibrary();

  // Throws Error with the reason and how to remove it unless `status` is success.
  void check(CUptiResult status, std::string_view call) const;

#define HONE_CUPTI_FUNCTIONS(use)            \
  use(cuptiGetResultString);                 \
  use(cuptiSubscribe);                       \
  use(cuptiUnsubscribe);                     \
  use(cuptiEnableCallback);                  \
  use(cuptiProfilerInitialize);              \
  use(cuptiProfilerGetCounterAvailability);  \
  use(cuptiDeviceGetChipName);               \
  use(cuptiProfilerHostInitialize);          \
  use(cuptiProfilerHostDeinitialize);        \
  use(cuptiProfilerHostGetMetricProperties); \
  use(cuptiProfilerHostConfigAddMetrics);    \
  use(cuptiProfilerHostGetConfigImageSize);  \
  use(cuptiProfilerHostGetConfigImage);      \
  use(cuptiProfilerHostEvaluateToGpuValues); \
  use(cuptiProfilerHostGetRangeName);        \
  use(cuptiRangeProfilerEnable);             \
  use(cuptiRangeProfilerDisable);            \
  use(cuptiRangeProfilerSetConfig);          \
  use(cuptiRangeProfilerStart);              \
  use(cuptiRangeProfilerStop);               \
  use(cuptiRangeProfilerDecodeData);         \
  use(cuptiRangeProfilerGetCounterDataSize); \
  use(cuptiRangeProfilerGetCounterDataInfo); \
  use(cuptiRangeProfilerCounterDataImageInitialize)
// A name to declare. NOLINTNEXTLINE(bugprone-macro-parentheses)
#define HONE_DECLARE(name) decltype(&::name) name = nullptr
  HONE_CUPTI_FUNCTIONS(HONE_DECLARE);
#undef HONE_DECLARE

 private:
  void* library_;
};

}  // namespace hone

#endif
