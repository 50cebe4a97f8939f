// The processes that run one engine together: a tensor group, of which each has a part of the weights and of the KV
// cache. The first rank takes requests, schedules, draws up grammars' masks and texts. The others follow: they wait for
// an order of the first rank and carry it out. An order to run a program brings the inputs that the first rank has set,
// so that all ranks run the same programs on the same inputs in the same order, whatever the requests are, and the
// followers need no request, no scheduler and no tokenizer.
//
// Orders travel over the connections of the job, between the sums of two programs on a CPU and next to NCCL's on GPUs.
// The first rank waits until a follower has taken the order before, so that it is never more than two steps ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backend/device.h"
#include "core/error.h"
#include "model/model.h"
#include "system/peers.h"

namespace hone {

class Collective;
class CollectiveScope;

enum class GroupOrder : std::uint32_t {
  kMakeEngine,    // EngineOptions
  kMakeEmbedder,  // EmbedderOptions
  kAllocate,      // the memory in which engine and embedder take turns
  kBeginEngine,   // number of the program, Executable::changes(): the first part of a run
  kRunEngine,     // likewise: a run, or what is left of it
  kRunEmbedder,   // likewise
  kSettle,        // wait for the runs under way
  kMemory,        // take part in EngineGroup::least() with the memory that the device has available
  kSleep,         // SleepLevel: give back engine, embedder and weights
  kWakeWeights,
  kUpdateWeights,    // folder
  kReceiveTensors,   // TensorNotices; then take part in EngineGroup::share() with their bytes
  kWeightsReceived,  // bool: every weight has a value from one version
  kEnd,
};

class EngineGroup {
 public:
  // Called by all ranks of a job on the thread that then uses the engine. While the object exists, the programs of this
  // thread are those of the tensor group. Throws Error as make_collective() does.
  EngineGroup(Device& device, Peers& peers);
  // A tensor group of a training job whose programs use it already (CollectiveScope). ranks: of the job, ascending. Its
  // first rank is never long without an order: followers wait for one no longer than for any other answer.
  EngineGroup(Peers& peers, std::vector<int> ranks);
  ~EngineGroup();

  [[nodiscard]] bool leads() const { return peers_.rank() == ranks_.front(); }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  // Returns this rank's part of a model, in a group of all ranks of a job. Throws Error as TensorParallelModel's
  // constructor does.
  [[nodiscard]] std::unique_ptr<Model> part_of(std::unique_ptr<Model> whole) const;

  // The following throw JobFailure if a rank is lost. Those of the first rank:
  //
  // Sends an order to all followers.
  void send(GroupOrder order, std::string_view content = {});
  // The same with a value of a type without pointers.
  template <class T>
  void send_value(GroupOrder order, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    send(order, {reinterpret_cast<const char*>(&value), sizeof value});
  }
  // Orders a run of a program. changes: Executable::changes()
  void send_run(GroupOrder order, std::size_t program, std::string_view changes);
  // Has the followers wait for their runs, if some may be under way. To be called when the next run may be far away:
  // an operation between GPUs that is not waited for counts as one that a lost rank holds up.
  void settle();
  // Has the followers return from follow_engine().
  void end() { send(GroupOrder::kEnd); }
  // Throws JobFailure if a rank has ended. Waits for nothing.
  void check() const;

  // A follower waits for an order, in a group of all ranks of a job as long as the first rank lives.
  struct Received {
    GroupOrder order = GroupOrder::kEnd;
    std::string content;

    template <class T>
    [[nodiscard]] T value() const {
      static_assert(std::is_trivially_copyable_v<T>);
      T value;
      HONE_ASSERT(content.size() == sizeof value, content.size(), " bytes of an order");
      std::memcpy(&value, content.data(), sizeof value);
      return value;
    }
  };
  [[nodiscard]] Received receive();

  // All ranks call the following in the same order, in a group of all ranks of a job.
  //
  // Returns the least of the values of all ranks, which are from 0 to 2^53.
  [[nodiscard]] std::int64_t least(std::int64_t value);
  // Returns true if any rank passes true.
  [[nodiscard]] bool any(bool mine) { return peers_.any(mine); }
  // Copies bytes of the first rank's device to those of the others. Throws JobFailure if a rank is lost meanwhile.
  void share(std::byte* data, std::size_t bytes);
  // Calls act(), which must not call the group. Returns null if no rank's has thrown Error; otherwise what this rank's
  // has thrown, or an Error about the first other rank whose has. Other exceptions pass.
  [[nodiscard]] std::exception_ptr together(const std::function<void()>& act);

 private:
  Device* device_ = nullptr;  // null: as collective_
  Peers& peers_;
  std::vector<int> ranks_;                  // of the job; the first one gives orders
  std::unique_ptr<Collective> collective_;  // null: the programs' is another's
  std::unique_ptr<CollectiveScope> scope_;
  std::string frame_;
  bool runs_ = false;  // a run may be under way on a follower
};

// The same in a group or, if `group` is null, by this process alone.
[[nodiscard]] std::exception_ptr run_together(EngineGroup* group, const std::function<void()>& act);

}  // namespace hone
