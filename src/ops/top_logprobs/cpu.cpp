#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/linear_logprobs/parted_softmax.h"
#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/sample/sample.h"
#include "ops/top_logprobs/top_logprobs.h"

namespace hone {
namespace {

// Returns the ids of the `count` largest logits, or of all that are numbers if these are fewer.
template <class A>
std::vector<std::int32_t> largest(const A* logits, std::int64_t vocab, std::int64_t count) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(vocab));
  std::iota(ids.begin(), ids.end(), 0);
  std::erase_if(ids, [&](std::int32_t id) { return logits[id] != logits[id]; });
  const auto end = ids.begin() + std::min<std::int64_t>(count, std::ssize(ids));
  std::partial_sort(ids.begin(), end, ids.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  ids.erase(end, ids.end());
  return ids;
}

template <class A>
void list(const KernelCall& call) {
  const TensorView& logits = call.in(TopLogprobsIn::logits);
  const std::int64_t vocab = logits.row_size();
  const auto [most, parts] = call.attributes_as<TopLogprobsAttributes>();
  const A* parameters = call.in(TopLogprobsIn::parameters).as<A>();
  const auto* counts = call.in(TopLogprobsIn::counts).as<std::int32_t>();
  auto* ids = call.out(TopLogprobsOut::ids).as<std::int32_t>();
  A* logps = call.out(TopLogprobsOut::logps).as<A>();
  for_rows(logits.rows(), vocab, [&, most = most, parts = parts](std::int64_t row) {
    std::fill_n(ids + row * most, most, -1);
    std::fill_n(logps + row * most, most, A(0));
    if (counts[row] <= 0) return;
    HONE_ASSERT(counts[row] <= most, "sample ", row, " asks for ", counts[row], " tokens of ", most);
    const A* values = logits.as<A>() + row * vocab;
    const A given = parameters[row * kSampleParameters + static_cast<std::int64_t>(SampleParameter::kTemperature)];
    const A temperature = given > A(0) ? given : A(1);
    const PartedSoftmax<A> softmax(values, vocab, temperature, parts);
    std::int64_t at = row * most;
    for (const std::int32_t id : largest(values, vocab, counts[row])) {
      ids[at] = id;
      logps[at++] = softmax.logp(id);
    }
  });
  zero_tail(call.out(TopLogprobsOut::ids));
  zero_tail(call.out(TopLogprobsOut::logps));
}

}  // namespace

void register_top_logprobs_cpu(KernelRegistry& registry) {
  registry.add("top_logprobs", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  call.in(TopLogprobsIn::logits).dtype() == DType::kF64 ? list<double>(call) : list<float>(call);
                },
                {}});
}

}  // namespace hone
