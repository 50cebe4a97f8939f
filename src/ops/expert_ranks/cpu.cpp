// The host knows the numbers of rows, so that ranks exchange these alone. The rows for one rank follow each other,
// because rows are ordered by expert.
#include <cstring>

#include "ops/expert_ranks/communication.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

void start(const KernelCall& call) {
  gather_starts(call);
  const auto& a = call.attributes_as<ExpertRanksAttributes>();
  const std::int64_t experts = a.experts / a.ranks;
  const std::int64_t first = expert_group().rank() * experts;
  const auto* starts = call.out(ExpertRanksStartOut::starts).as<std::int32_t>();
  auto* place = call.out(ExpertRanksStartOut::place).as<std::int32_t>();
  auto* own = call.out(ExpertRanksStartOut::own).as<std::int32_t>();
  std::int32_t rows = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    own[e] = rows;
    for (std::int64_t r = 0; r < a.ranks; ++r) {
      const std::int32_t* of_rank = starts + r * (a.experts + 1) + first + e;
      place[e * a.ranks + r] = rows;
      rows += of_rank[1] - of_rank[0];
    }
  }
  own[experts] = rows;
  *call.out(ExpertRanksStartOut::rows).as<std::int64_t>() = rows;
}

// The rows that this rank exchanges.
struct Exchange {
  explicit Exchange(const KernelCall& call)
      : attributes(call.attributes_as<ExpertRanksAttributes>()),
        starts(call.in(ExpertRanksSendIn::starts).as<std::int32_t>()),
        place(call.in(ExpertRanksSendIn::place).as<std::int32_t>()),
        row_bytes(static_cast<std::size_t>(call.out(0).row_size()) * size_of(call.out(0).dtype())) {}

  // The first of the rows of rank `from` for expert `e` of rank `to`, among all rows of rank `from`.
  [[nodiscard]] std::int64_t row(std::int64_t from, std::int64_t to, std::int64_t e) const {
    return starts[from * (attributes.experts + 1) + to * experts + e];
  }
  [[nodiscard]] ByteRange bytes(std::int64_t begin, std::int64_t end) const {
    return {static_cast<std::size_t>(begin) * row_bytes, static_cast<std::size_t>(end) * row_bytes};
  }
  // The ranges of this rank's own rows that belong to the experts of each rank.
  [[nodiscard]] std::vector<ByteRange> here() const {
    std::vector<ByteRange> ranges;
    ranges.reserve(static_cast<std::size_t>(attributes.ranks));
    for (std::int64_t r = 0; r < attributes.ranks; ++r) ranges.push_back(bytes(row(me, r, 0), row(me, r, experts)));
    return ranges;
  }
  // The ranges of the rows for this rank's experts, those of rank 0 first.
  [[nodiscard]] std::vector<ByteRange> there() const {
    std::vector<ByteRange> ranges;
    ranges.reserve(static_cast<std::size_t>(attributes.ranks));
    std::int64_t begin = 0;
    for (std::int64_t r = 0; r < attributes.ranks; ++r) {
      const std::int64_t count = row(r, me, experts) - row(r, me, 0);
      ranges.push_back(bytes(begin, begin + count));
      begin += count;
    }
    return ranges;
  }
  // Calls copy(bytes in the order of ranks, bytes in the order of experts, number of bytes) for the rows of each expert
  // of this rank from each rank.
  template <class Copy>
  void for_each_block(const Copy& copy) const {
    const std::vector<ByteRange> ranges = there();
    parallel_for(experts * attributes.ranks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t e = i / attributes.ranks;
        const std::int64_t r = i % attributes.ranks;
        const ByteRange block = bytes(row(r, me, e) - row(r, me, 0), row(r, me, e + 1) - row(r, me, 0));
        copy(ranges[static_cast<std::size_t>(r)].begin + block.begin, static_cast<std::size_t>(place[i]) * row_bytes,
             block.end - block.begin);
      }
    });
  }

  const ExpertRanksAttributes& attributes;
  const std::int32_t* starts;  // [ranks, experts + 1]
  const std::int32_t* place;   // [experts of this rank, ranks]
  std::size_t row_bytes;
  std::int64_t experts = attributes.experts / attributes.ranks;
  std::int64_t me = expert_group().rank();
};

// The received rows arrive in the workspace, in the order of ranks.
void send(const KernelCall& call) {
  const Exchange exchange(call);
  std::byte* const received = call.workspace.data();
  expert_group().all_to_all(call.in(ExpertRanksSendIn::x).data, exchange.here(), received, exchange.there());
  exchange.for_each_block([&](std::size_t by_rank, std::size_t by_expert, std::size_t bytes) {
    if (bytes > 0) std::memcpy(call.out(0).data + by_expert, received + by_rank, bytes);
  });
  zero_tail(call.out(0));
}

void give_back(const KernelCall& call) {
  const Exchange exchange(call);
  const std::byte* const computed = call.in(ExpertRanksSendIn::x).data;
  std::byte* const sent = call.workspace.data();
  exchange.for_each_block([&](std::size_t by_rank, std::size_t by_expert, std::size_t bytes) {
    if (bytes > 0) std::memcpy(sent + by_rank, computed + by_expert, bytes);
  });
  expert_group().all_to_all(sent, exchange.there(), call.out(0).data, exchange.here());
  zero_tail(call.out(0));
}

std::size_t expert_ranks_workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  constexpr std::string_view kName = "expert_ranks";
  return bytes_of_all(required(inputs, ExpertRanksSendIn::x, kName),
                      required(inputs, ExpertRanksSendIn::position, kName), attributes.as<ExpertRanksAttributes>());
}

}  // namespace

void register_expert_ranks_cpu(KernelRegistry& registry) {
  registry.add("expert_ranks_start", DeviceKind::kCpu, {start, {}});
  registry.add("expert_ranks_send", DeviceKind::kCpu, {send, expert_ranks_workspace});
  registry.add("expert_ranks_return", DeviceKind::kCpu, {give_back, expert_ranks_workspace});
}

}  // namespace hone
