#include "backend/collective.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/gpu_collective.h"
#include "core/error.h"
#include "core/parallel.h"

namespace hone {
namespace {

// Bytes that a rank sends to each other rank before it reads on: large enough for the rate of a network, and small
// enough that what arrives is still in the cache when it is added.
constexpr std::size_t kRoundBytes = std::size_t{256} << 10;

// A tensor is summed in one exchange, of all of it, if it has no more bytes on all ranks together: a second exchange
// would take longer than they do.
constexpr std::size_t kWholeBytes = std::size_t{256} << 10;

// Adds `count` elements of each contribution, in the order given, and writes the sums.
template <class T>
void add_in_order(std::span<const std::byte* const> contributions, std::byte* sums, std::size_t count) {
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  auto* to = reinterpret_cast<T*>(sums);
  parallel_for(static_cast<std::int64_t>(count), 16384, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      A sum = static_cast<A>(reinterpret_cast<const T*>(contributions[0])[i]);
      for (const std::byte* each : contributions.subspan(1)) sum += static_cast<A>(reinterpret_cast<const T*>(each)[i]);
      to[i] = static_cast<T>(sum);
    }
  });
}

void add_in_order(DType dtype, std::span<const std::byte* const> contributions, std::byte* sums, std::size_t count) {
  switch (dtype) {
    case DType::kF32:
      return add_in_order<float>(contributions, sums, count);
    case DType::kBf16:
      return add_in_order<BFloat16>(contributions, sums, count);
    case DType::kF64:
      return add_in_order<double>(contributions, sums, count);
    default:
      throw Defect(text_of("no sums over ranks for the dtype ", name_of(dtype)));
  }
}

// Operations on host memory. Each rank adds one part of the data, which all others send to it.
class HostCollective final : public Collective {
 public:
  HostCollective(Peers& peers, std::vector<int> group) : Collective(peers, std::move(group)) {}

  void all_reduce(std::byte* data, DType dtype, std::size_t count) override {
    const std::size_t element = size_of(dtype);
    const auto ranks = static_cast<std::size_t>(size());
    if (count * element * ranks <= kWholeBytes) {
      const std::vector<ByteRange> whole(ranks, {0, count * element});
      reduce_scatter(data, dtype, whole);  // each rank adds everything
      return;
    }
    // Equal parts, so that each rank sends and adds as much as the others.
    std::vector<ByteRange> parts;
    parts.reserve(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      parts.push_back({count * r / ranks * element, count * (r + 1) / ranks * element});
    }
    reduce_scatter(data, dtype, parts);
    all_gather(data, parts);
  }

  void reduce_scatter(std::byte* data, DType dtype, std::span<const ByteRange> parts) override {
    std::size_t longest = 0;
    for (const ByteRange& part : parts) longest = std::max(longest, part.end - part.begin);
    for (std::size_t done = 0; done < longest; done += kRoundBytes) reduce_piece(data, dtype, parts, done);
  }

  void all_gather(std::byte* data, std::span<const ByteRange> parts) override {
    const std::span<std::byte> mine = part_of(data, parts[static_cast<std::size_t>(rank())]);
    std::vector<Peers::Transfer> transfers;
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) transfers.push_back({job_rank(r), mine, part_of(data, parts[static_cast<std::size_t>(r)])});
    }
    peers().exchange(transfers);
  }

  void all_to_all(const std::byte* from, std::span<const ByteRange> sent, std::byte* to,
                  std::span<const ByteRange> received) override {
    std::vector<Peers::Transfer> transfers;
    for (int r = 0; r < size(); ++r) {
      const ByteRange& out = sent[static_cast<std::size_t>(r)];
      const ByteRange& in = received[static_cast<std::size_t>(r)];
      if (r == rank()) {
        copy(to + in.begin, from + out.begin, out.end - out.begin);
      } else {
        transfers.push_back({job_rank(r), {from + out.begin, out.end - out.begin}, part_of(to, in)});
      }
    }
    peers().exchange(transfers);
  }

  void broadcast(std::byte* data, std::size_t bytes, int root) override {
    std::vector<ByteRange> parts(static_cast<std::size_t>(size()));
    parts[static_cast<std::size_t>(root)] = {0, bytes};
    all_gather(data, parts);
  }

  void exchange(int rank, std::span<const std::byte> out, std::span<std::byte> in) override {
    const Peers::Transfer transfer{job_rank(rank), out, in};
    peers().exchange({&transfer, 1});
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

 private:
  static std::span<std::byte> part_of(std::byte* data, const ByteRange& part) {
    return {data + part.begin, part.end - part.begin};
  }

  // The bytes of a part that are exchanged after `done` bytes.
  static ByteRange piece_of(const ByteRange& part, std::size_t done) {
    const std::size_t begin = std::min(part.end, part.begin + done);
    return {begin, std::min(part.end, begin + kRoundBytes)};
  }

  // Adds the bytes after `done` of each part.
  void reduce_piece(std::byte* data, DType dtype, std::span<const ByteRange> parts, std::size_t done) {
    const auto own = static_cast<std::size_t>(rank());
    const ByteRange mine = piece_of(parts[own], done);
    const std::size_t bytes = mine.end - mine.begin;
    received_.resize(static_cast<std::size_t>(size()) * kRoundBytes);
    std::vector<const std::byte*> contributions;
    std::vector<Peers::Transfer> transfers;
    for (std::size_t r = 0; r < parts.size(); ++r) {
      std::byte* from = r == own ? data + mine.begin : received_.data() + r * kRoundBytes;
      contributions.push_back(from);
      if (r != own) {
        transfers.push_back({job_rank(static_cast<int>(r)), part_of(data, piece_of(parts[r], done)), {from, bytes}});
      }
    }
    peers().exchange(transfers);
    if (bytes > 0) add_in_order(dtype, contributions, data + mine.begin, bytes / size_of(dtype));
  }

  std::vector<std::byte> received_;  // [ranks, kRoundBytes]
};

thread_local MeshCollectives innermost;

}  // namespace

std::vector<ByteRange> equal_blocks(int ranks, std::size_t block_bytes) {
  std::vector<ByteRange> blocks;
  blocks.reserve(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
    blocks.push_back({r * block_bytes, (r + 1) * block_bytes});
  return blocks;
}

Collective::Collective(Peers& peers, std::vector<int> group) : peers_(peers), group_(std::move(group)) {
  const auto own = std::ranges::find(group_, peers.rank());
  HONE_ASSERT(own != group_.end(), "rank ", peers.rank(), " is not in its own group");
  rank_ = static_cast<int>(own - group_.begin());
}

CollectiveScope::CollectiveScope(Collective* data, Collective* tensor)
    : CollectiveScope(MeshCollectives{.data = data, .tensor = tensor}) {}
CollectiveScope::CollectiveScope(const MeshCollectives& mesh) : before_(std::exchange(innermost, mesh)) {}
CollectiveScope::~CollectiveScope() { innermost = before_; }

Collective* current_collective() { return innermost.data; }
Collective* current_tensor_collective() { return innermost.tensor; }
Collective* current_pipeline_collective() { return innermost.pipeline; }
Collective* current_expert_collective() { return innermost.experts; }
Collective* current_same_experts_collective() { return innermost.same_experts; }
Collective* current_context_collective() { return innermost.context; }

namespace {

std::array<Collective*, 6> all_innermost() {
  return {innermost.data,    innermost.tensor,       innermost.pipeline,
          innermost.experts, innermost.same_experts, innermost.context};
}

}  // namespace

void expect_operations() {
  for (Collective* each : all_innermost()) {
    if (each != nullptr) each->expect();
  }
}

void check_operations() {
  for (Collective* each : all_innermost()) {
    if (each != nullptr) each->check();
  }
}

std::unique_ptr<Collective> make_collective(Device& device, Peers& peers, std::vector<int> group) {
  if (group.empty()) {
    for (int rank = 0; rank < peers.size(); ++rank) group.push_back(rank);
  }
  const bool is_gpu = device.kind() == DeviceKind::kCuda;
  const std::vector<std::string> kinds = peers.gather(is_gpu ? "a GPU" : "a CPU");
  for (std::size_t r = 0; r < kinds.size(); ++r) {
    if (kinds[r] == kinds[0]) continue;
    throw Error(
        "device",
        text_of(peers.name_of(static_cast<int>(r)), " runs on ", kinds[r], ", ", peers.name_of(0), " on ", kinds[0]),
        "set device: cuda or device: cpu for all ranks");
  }
  if (is_gpu) return make_gpu_collective(device, peers, std::move(group));
  return std::make_unique<HostCollective>(peers, std::move(group));
}

}  // namespace hone
