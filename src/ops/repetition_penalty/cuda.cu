// Repetition penalty on a GPU. A block has one row: it copies the row and then overwrites the logits at the row's ids,
// each by one thread, because no id occurs twice.
#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"
#include "ops/repetition_penalty/repetition_penalty.h"

namespace hone {
namespace {

constexpr int kPenaltyThreads = 512;

template <class A, int kPack>
__global__ void __launch_bounds__(kPenaltyThreads)
    repetition_penalty_kernel(const A* logits, const A* penalties, const std::int32_t* offsets, const std::int32_t* ids,
                              RowCount rows, std::int64_t vocab, A* result) {
  const std::int64_t row = blockIdx.x;
  const bool used = row < rows.get();
  logits += row * vocab;
  result += row * vocab;
  for (std::int64_t i = static_cast<int>(threadIdx.x) * kPack; i < vocab; i += kPenaltyThreads * kPack) {
    Pack<A, kPack> pack{};
    if (used) pack = load_streamed<A, kPack>(logits + i);
    *reinterpret_cast<Pack<A, kPack>*>(result + i) = pack;
  }
  if (!used) return;
  __syncthreads();  // the copy is complete before any of its logits is overwritten
  const A penalty = penalties[row];
  const std::int32_t end = offsets[row + 1];
  for (std::int32_t i = offsets[row] + static_cast<int>(threadIdx.x); i < end; i += kPenaltyThreads) {
    const A logit = logits[ids[i]];
    result[ids[i]] = logit > A(0) ? logit / penalty : logit * penalty;
  }
}

template <class A>
void penalize(const KernelCall& call) {
  const TensorView& logits = call.in(RepetitionPenaltyIn::logits);
  if (logits.capacity() == 0) return;
  with_pack<A>(logits.row_size(), [&]<int kPack>() {
    repetition_penalty_kernel<A, kPack>
        <<<static_cast<unsigned>(logits.capacity()), kPenaltyThreads, 0, stream_of(call)>>>(
            cuda_data<A>(logits), cuda_data<A>(call.in(RepetitionPenaltyIn::penalties)),
            cuda_data<std::int32_t>(call.in(RepetitionPenaltyIn::offsets)),
            cuda_data<std::int32_t>(call.in(RepetitionPenaltyIn::ids)), row_count(logits), logits.row_size(),
            cuda_data<A>(call.out(0)));
  });
  check_launch("repetition_penalty");
}

}  // namespace

void register_repetition_penalty_cuda(KernelRegistry& registry) {
  registry.add("repetition_penalty", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  call.in(RepetitionPenaltyIn::logits).dtype() == DType::kF64 ? penalize<double>(call)
                                                                              : penalize<float>(call);
                },
                {}});
}

}  // namespace hone
