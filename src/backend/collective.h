// Collective operations on the memory of the devices of a job's processes ("ranks"), of all of them or of a group. All
// ranks of a group call the same operations in the same order. Like other work of a device they may still run when a
// call returns.
//
// On CPUs a sum is ((x0 + x1) + x2) + ..., in the order of ranks, in f32 for f32 and bf16, which is rounded once. On
// GPUs it is in the order of NCCL's algorithm, which is fixed for a number of ranks, a layout of machines and a size.
// Either way all ranks get the same bits, and the same job gives the same bits again.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "core/dtype.h"
#include "system/peers.h"

namespace hone {

// Bytes [begin, end) of a region of memory.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Returns the ranges of consecutive blocks of equal size, one for each rank.
[[nodiscard]] std::vector<ByteRange> equal_blocks(int ranks, std::size_t block_bytes);

class Collective {
 public:
  // group: ranks of the job that operate together, ascending; this process is one of them.
  Collective(Peers& peers, std::vector<int> group);
  virtual ~Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  [[nodiscard]] Peers& peers() const { return peers_; }
  // This process's number within the group, and the size of the group.
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(group_.size()); }
  // Returns the rank in the job of a rank of the group.
  [[nodiscard]] int job_rank(int rank) const { return group_[static_cast<std::size_t>(rank)]; }

  // Replaces `count` elements (f32, bf16 or f64) by their sums over all ranks.
  virtual void all_reduce(std::byte* data, DType dtype, std::size_t count) = 0;
  // Sums like all_reduce(), but rank r gets only the elements of parts[r], ranges of bytes that do not overlap; the
  // rest of its data is undefined. The parts have the bits of all_reduce() on CPUs.
  virtual void reduce_scatter(std::byte* data, DType dtype, std::span<const ByteRange> parts) = 0;
  // Copies the bytes parts[r] of each rank r to all other ranks.
  virtual void all_gather(std::byte* data, std::span<const ByteRange> parts) = 0;
  // Copies the bytes sent[r] of `from` to rank r, and those that rank r has for this one to the bytes received[r] of
  // `to`, for each rank of the group and itself. The two ranks of a pair give as many bytes. `from` and `to` do not
  // overlap.
  virtual void all_to_all(const std::byte* from, std::span<const ByteRange> sent, std::byte* to,
                          std::span<const ByteRange> received) = 0;
  // Copies the bytes of rank `root` to all others.
  virtual void broadcast(std::byte* data, std::size_t bytes, int root) = 0;
  // Sends `out` to a rank and receives `in` from it, either of which may be empty. The other rank does the reverse with
  // as many bytes; both may wait for each other.
  virtual void exchange(int rank, std::span<const std::byte> out, std::span<std::byte> in) = 0;
  // Copies bytes of this rank's device, in order with the operations.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

  // Calls operations() and submits what it calls as a whole, which saves time if there are many small operations.
  virtual void together(const std::function<void()>& operations) { operations(); }
  // Calls operations(), whose work begins after the device's work so far and then runs next to its later work, until
  // wait(slot). Both calls can be recorded if they are in the same recording. `slot` identifies the work until then.
  virtual void start(int slot, const std::function<void()>& operations) {
    (void)slot;
    operations();
  }
  virtual void wait(int slot) { (void)slot; }
  // Announces operations that a recording repeats, so that the loss of a rank is noticed meanwhile.
  virtual void expect() {}
  // To be called once the device has been waited for. Throws JobFailure if an operation was given up because a rank was
  // lost meanwhile; its results are then undefined.
  virtual void check() {}
  void barrier() { peers_.barrier(); }

 private:
  Peers& peers_;
  std::vector<int> group_;
  int rank_ = 0;
};

// The operations that a program uses. A job is a mesh: the ranks of a tensor group have parts of the same weights and
// compute the same batches; those of a data group have the same weights and compute different tokens; those of a
// pipeline have consecutive layers and compute the same batches one after the other. The ranks of an expert group are
// in one data group, but each has other experts. The ranks of a context group are in one data group and divide the
// tokens of the same batches.
struct MeshCollectives {
  Collective* data = nullptr;          // null: a job of one process
  Collective* tensor = nullptr;        // null: weights are not divided
  Collective* pipeline = nullptr;      // null: layers are not divided
  Collective* experts = nullptr;       // of the expert group; null: each rank has all experts
  Collective* same_experts = nullptr;  // of the ranks that have this rank's experts; null: no other rank has them
  Collective* context = nullptr;       // null: the tokens of a batch are not divided
};

// The operations that the programs of this thread use while it exists. They nest.
class CollectiveScope {
 public:
  explicit CollectiveScope(Collective* data, Collective* tensor = nullptr);
  explicit CollectiveScope(const MeshCollectives& mesh);
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;
  ~CollectiveScope();

 private:
  MeshCollectives before_;
};

// Return the operations of the innermost scope of this thread; null if there are none.
[[nodiscard]] Collective* current_collective();           // of the data group
[[nodiscard]] Collective* current_tensor_collective();    // of the tensor group
[[nodiscard]] Collective* current_pipeline_collective();  // of the pipeline
[[nodiscard]] Collective* current_expert_collective();    // of the expert group
[[nodiscard]] Collective* current_same_experts_collective();
[[nodiscard]] Collective* current_context_collective();  // of the context group
// Call expect() or check() of all of them.
void expect_operations();
void check_operations();

// Returns the operations of a group on the memory of a device, which must be of the same kind in all processes: over
// the connections of `peers` on CPUs, by NCCL between GPUs. All ranks of the job call it, each with its own group,
// which is empty for all ranks. Throws Error if the kinds differ, two ranks have the same GPU, or NCCL cannot be used.
[[nodiscard]] std::unique_ptr<Collective> make_collective(Device& device, Peers& peers, std::vector<int> group = {});

}  // namespace hone
