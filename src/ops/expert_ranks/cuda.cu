// NCCL takes the sizes of messages from the host, which does not know how many rows a rank has for another: the counts
// are made on the device, within a recording of launches that the host replays. Ranks therefore exchange slots, one for
// each pair, of the most rows that it can have (most_rows_to_rank). Reading the counts instead would end the recording
// at each layer and make the host wait there.
//
// Slots are packed before the exchange and unpacked behind it. Rows of a slot that are not in use are sent as they are,
// and not read.
#include <algorithm>

#include "ops/bisection.cuh"
#include "ops/clear_rows.cuh"
#include "ops/cuda_kernel.cuh"
#include "ops/expert_ranks/communication.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;
constexpr int kMostPlaces = 1024;  // threads that compute the places of experts

// One block. Sums over the ranks, then over the experts; thread t has the experts t, t + blockDim.x, ...
__global__ void __launch_bounds__(kMostPlaces)
    start_kernel(const std::int32_t* starts, int all_experts, int experts, int ranks, int first, std::int32_t* place,
                 std::int32_t* own, std::int64_t* rows) {
  const auto count = [&](int e, int r) {
    const std::int32_t* of_rank = starts + r * (all_experts + 1) + first + e;
    return of_rank[1] - of_rank[0];
  };
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x)) {
    std::int32_t total = 0;
    for (int r = 0; r < ranks; ++r) total += count(e, r);
    own[e + 1] = total;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    own[0] = 0;
    for (int e = 0; e < experts; ++e) own[e + 1] += own[e];
    *rows = own[experts];
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x)) {
    std::int32_t next = own[e];
    for (int r = 0; r < ranks; ++r) {
      place[e * ranks + r] = next;
      next += count(e, r);
    }
  }
}

// The rows that a rank exchanges. Slot r of `slot_rows` rows is that of rank r.
struct Slots {
  const std::int32_t* starts;  // [ranks, all experts + 1]
  const std::int32_t* place;   // [experts of this rank, ranks]
  int all_experts;
  int experts;
  int ranks;
  int me;
  std::int64_t slot_rows;

  // The first row of rank `from` for the experts of rank `to`, from expert e of these on.
  [[nodiscard]] __device__ const std::int32_t* rows(int from, int to) const {
    return starts + from * (all_experts + 1) + to * experts;
  }
};

// Index, among this rank's own rows, of row `row` of slot r; -1: the row is not in use.
__device__ std::int64_t row_here(const Slots& slots, int r, std::int64_t row) {
  const std::int32_t* first = slots.rows(slots.me, r);
  return row < first[slots.experts] - first[0] ? first[0] + row : -1;
}

// Index, among the rows of this rank's experts, of row `row` of slot r; -1: the row is not in use.
__device__ std::int64_t row_there(const Slots& slots, int r, std::int64_t row) {
  const std::int32_t* first = slots.rows(r, slots.me);
  const std::int64_t at = first[0] + row;
  if (at >= first[slots.experts]) return -1;
  const std::int64_t e = last_up_to(at, first, slots.experts);
  return slots.place[e * slots.ranks + r] + (at - first[e]);
}

// Copies rows of `words` words between slots and rows in their order. blockIdx.x is the row in its slot, blockIdx.y the
// slot.
template <bool kHere, bool kPacks>
__global__ void __launch_bounds__(kThreads)
    slot_kernel(Slots slots, std::int64_t words, const std::uint32_t* from, std::uint32_t* to) {
  const int r = static_cast<int>(blockIdx.y);
  const std::int64_t in_slot = static_cast<std::int64_t>(r) * slots.slot_rows + blockIdx.x;
  const std::int64_t row = kHere ? row_here(slots, r, blockIdx.x) : row_there(slots, r, blockIdx.x);
  if (row < 0) return;
  const std::uint32_t* source = from + (kPacks ? row : in_slot) * words;
  std::uint32_t* target = to + (kPacks ? in_slot : row) * words;
  for (std::int64_t i = threadIdx.x; i < words; i += kThreads) target[i] = source[i];
}

void start(const KernelCall& call) {
  gather_starts(call);
  const auto& a = call.attributes_as<ExpertRanksAttributes>();
  const auto experts = static_cast<int>(a.experts / a.ranks);
  const int threads = std::clamp(experts, 32, kMostPlaces);
  start_kernel<<<1, static_cast<unsigned>(threads), 0, stream_of(call)>>>(
      call.out(ExpertRanksStartOut::starts).as<std::int32_t>(), static_cast<int>(a.experts), experts,
      static_cast<int>(a.ranks), expert_group().rank() * experts,
      call.out(ExpertRanksStartOut::place).as<std::int32_t>(), call.out(ExpertRanksStartOut::own).as<std::int32_t>(),
      call.out(ExpertRanksStartOut::rows).as<std::int64_t>());
  check_launch("expert_ranks_start");
}

Slots slots_of(const KernelCall& call) {
  const auto& a = call.attributes_as<ExpertRanksAttributes>();
  return {.starts = call.in(ExpertRanksSendIn::starts).as<std::int32_t>(),
          .place = call.in(ExpertRanksSendIn::place).as<std::int32_t>(),
          .all_experts = static_cast<int>(a.experts),
          .experts = static_cast<int>(a.experts / a.ranks),
          .ranks = static_cast<int>(a.ranks),
          .me = expert_group().rank(),
          .slot_rows = most_rows_to_rank(*call.in(ExpertRanksSendIn::position).type, a)};
}

// Packs x into slots (kToExperts: by this rank's order of rows), exchanges the slots and unpacks them into y. The
// workspace holds the slots of both directions.
template <bool kToExperts>
void move(const KernelCall& call) {
  const TensorView& x = call.in(ExpertRanksSendIn::x);
  const TensorView& y = call.out(0);
  if (x.elements() == 0) return;
  const Slots slots = slots_of(call);
  const std::size_t row_bytes = static_cast<std::size_t>(x.row_size()) * size_of(x.dtype());
  HONE_ASSERT(row_bytes % sizeof(std::uint32_t) == 0, "rows of ", row_bytes, " bytes are not exchanged");
  const auto words = static_cast<std::int64_t>(row_bytes / sizeof(std::uint32_t));
  const std::size_t slot_bytes = static_cast<std::size_t>(slots.slot_rows) * row_bytes;
  std::byte* const sent = call.workspace.data();
  std::byte* const received = sent + static_cast<std::size_t>(slots.ranks) * slot_bytes;
  const dim3 grid(static_cast<unsigned>(slots.slot_rows), static_cast<unsigned>(slots.ranks));
  const auto as_words = [](std::byte* bytes) { return reinterpret_cast<std::uint32_t*>(bytes); };
  slot_kernel<kToExperts, true><<<grid, kThreads, 0, stream_of(call)>>>(slots, words, as_words(x.data), as_words(sent));
  check_launch("expert_ranks: pack");
  std::vector<ByteRange> ranges;
  for (std::size_t r = 0; r < static_cast<std::size_t>(slots.ranks); ++r) {
    ranges.push_back({r * slot_bytes, (r + 1) * slot_bytes});
  }
  expert_group().all_to_all(sent, ranges, received, ranges);
  slot_kernel<!kToExperts, false>
      <<<grid, kThreads, 0, stream_of(call)>>>(slots, words, as_words(received), as_words(y.data));
  check_launch("expert_ranks: unpack");
  clear_rows_past_count(call, y);
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  constexpr std::string_view kName = "expert_ranks";
  return 2 * bytes_of_all(required(inputs, ExpertRanksSendIn::x, kName),
                          required(inputs, ExpertRanksSendIn::position, kName), attributes.as<ExpertRanksAttributes>());
}

}  // namespace

void register_expert_ranks_cuda(KernelRegistry& registry) {
  registry.add("expert_ranks_start", DeviceKind::kCuda, {start, {}});
  registry.add("expert_ranks_send", DeviceKind::kCuda, {move<true>, workspace});
  registry.add("expert_ranks_return", DeviceKind::kCuda, {move<false>, workspace});
}

}  // namespace hone
