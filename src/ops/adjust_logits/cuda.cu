// Adjustment of logits on a GPU. A block has one row. If the row is adjusted, the block copies or fills it and then
// overwrites the logits of the row's entries, each by one thread, because no id occurs twice. The unread token's logit
// is written by the thread of its entry, or if it has none by thread 0 afterwards. A logit that the row's mask forbids
// is -inf wherever it is written, so that the mask costs no pass over the row.
#include <limits>

#include "ops/adjust_logits/adjust_logits.h"
#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kAdjustThreads = 512;

template <class A>
struct AdjustArguments {
  const A* logits;
  const A* parameters;
  const std::int32_t* sampled;
  std::int32_t sampled_size;
  const std::int32_t* unread;
  const std::int32_t* offsets;
  const std::int32_t* ids;
  const std::int32_t* occurrences;
  const A* biases;
  const std::int32_t* mask_rows;
  const std::int32_t* masks;
  std::int32_t mask_count;
  RowCount rows;
  std::int64_t vocab;
  A* result;
  std::int32_t* adjusted;
};

// Copies a row but for the logits that its mask forbids, or fills it if it is restricted or not in use.
template <class A, int kPack>
__device__ void begin_row(const A* logits, const std::int32_t* mask, std::int64_t vocab, bool copies, A fill,
                          A* result) {
  for (std::int64_t i = static_cast<int>(threadIdx.x) * kPack; i < vocab; i += kAdjustThreads * kPack) {
    Pack<A, kPack> pack;
    if (copies) {
      pack = load_streamed<A, kPack>(logits + i);
      for (int lane = 0; lane < kPack; ++lane) {
        if (!is_allowed(mask, i + lane)) pack.values[lane] = -std::numeric_limits<A>::infinity();
      }
    } else {
      for (int lane = 0; lane < kPack; ++lane) pack.values[lane] = fill;
    }
    *reinterpret_cast<Pack<A, kPack>*>(result + i) = pack;
  }
}

template <class A, int kPack>
__global__ void __launch_bounds__(kAdjustThreads) adjust_logits_kernel(AdjustArguments<A> p) {
  __shared__ bool has_entry;
  const std::int64_t row = blockIdx.x;
  const bool used = row < p.rows.get();
  const A* logits = p.logits + row * p.vocab;
  A* result = p.result + row * p.vocab;
  const A* parameters = p.parameters + row * kAdjustmentParameters;
  const auto parameter = [&](AdjustmentParameter which) { return parameters[static_cast<int>(which)]; };
  const bool restricted = used && parameter(AdjustmentParameter::kRestricts) != A(0);
  const std::int32_t mask_row = used ? p.mask_rows[row] : -1;
  const std::int32_t* mask =
      mask_row >= 0 && mask_row < p.mask_count ? p.masks + mask_row * mask_row_size(p.vocab) : nullptr;
  const std::int32_t unread = used ? p.unread[row] : -1;
  const bool adjusts = restricted || mask_row >= 0 || unread >= 0 || (used && p.offsets[row] < p.offsets[row + 1]);
  if (threadIdx.x == 0) p.adjusted[row] = adjusts ? 1 : 0;
  if (used && !adjusts) return;
  begin_row<A, kPack>(logits, mask, p.vocab, used && !restricted,
                      restricted ? -std::numeric_limits<A>::infinity() : A(0), result);
  if (!used) return;
  if (threadIdx.x == 0) has_entry = false;
  __syncthreads();  // the row is complete before any of its logits is overwritten
  const LogitAdjustment<A> adjusted{parameter(AdjustmentParameter::kRepetition),
                                    parameter(AdjustmentParameter::kFrequency),
                                    parameter(AdjustmentParameter::kPresence)};
  const std::int32_t newest = unread >= 0 && unread < p.sampled_size ? p.sampled[unread] : -1;
  const std::int32_t end = p.offsets[row + 1];
  for (std::int32_t i = p.offsets[row] + static_cast<int>(threadIdx.x); i < end; i += kAdjustThreads) {
    const std::int32_t id = p.ids[i];
    if (id == newest) has_entry = true;
    const std::int32_t occurrences = p.occurrences[i] + (id == newest ? occurrences_of(false, 1) : 0);
    if (is_allowed(mask, id)) result[id] = adjusted(logits[id], occurrences, p.biases[i]);
  }
  __syncthreads();  // every entry has been compared with the unread token
  if (threadIdx.x == 0 && newest >= 0 && !has_entry && is_allowed(mask, newest)) {
    result[newest] = adjusted(logits[newest], occurrences_of(false, 1), A(0));
  }
}

template <class A>
void adjust(const KernelCall& call) {
  using In = AdjustLogitsIn;
  const TensorView& logits = call.in(In::logits);
  if (logits.capacity() == 0) return;
  const AdjustArguments<A> arguments{
      .logits = cuda_data<A>(logits),
      .parameters = cuda_data<A>(call.in(In::parameters)),
      .sampled = cuda_data<std::int32_t>(call.in(In::sampled)),
      .sampled_size = static_cast<std::int32_t>(call.in(In::sampled).capacity()),
      .unread = cuda_data<std::int32_t>(call.in(In::unread)),
      .offsets = cuda_data<std::int32_t>(call.in(In::offsets)),
      .ids = cuda_data<std::int32_t>(call.in(In::ids)),
      .occurrences = cuda_data<std::int32_t>(call.in(In::occurrences)),
      .biases = cuda_data<A>(call.in(In::biases)),
      .mask_rows = cuda_data<std::int32_t>(call.in(In::mask_rows)),
      .masks = cuda_data<std::int32_t>(call.in(In::masks)),
      .mask_count = static_cast<std::int32_t>(call.in(In::masks).capacity()),
      .rows = row_count(logits),
      .vocab = logits.row_size(),
      .result = cuda_data<A>(call.out(AdjustLogitsOut::logits)),
      .adjusted = cuda_data<std::int32_t>(call.out(AdjustLogitsOut::adjusted)),
  };
  with_pack<A>(logits.row_size(), [&]<int kPack>() {
    adjust_logits_kernel<A, kPack>
        <<<static_cast<unsigned>(logits.capacity()), kAdjustThreads, 0, stream_of(call)>>>(arguments);
  });
  check_launch("adjust_logits");
}

}  // namespace

void register_adjust_logits_cuda(KernelRegistry& registry) {
  registry.add("adjust_logits", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  call.in(AdjustLogitsIn::logits).dtype() == DType::kF64 ? adjust<double>(call) : adjust<float>(call);
                },
                {}});
}

}  // namespace hone
