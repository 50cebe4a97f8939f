#include "cli/shared_work.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/parallel.h"
#include "system/process.h"

namespace hone {
namespace {

constexpr std::chrono::milliseconds kShareLook{100};

class ShareProcesses final : public OtherShares {
 public:
  ShareProcesses(ReplicaPlan plan, const std::filesystem::path& folder) : processes_(after_first(plan), folder) {
    if (environment_variable("OMP_NUM_THREADS").empty()) set_thread_count(std::max(1, thread_count() / plan.count));
    log_info(text_of("dividing the work over ", plan.count, " processes; what follows is about this one's share"));
  }

  void check() override { processes_.wait(std::chrono::milliseconds(0)); }
  void finish() override {
    if (processes_.running() > 0) log_info("waiting for the other processes");
    while (processes_.running() > 0) {
      throw_if_interrupted();
      processes_.wait(kShareLook);
    }
  }

 private:
  static ReplicaPlan after_first(ReplicaPlan plan) {
    plan.first = 1;
    return plan;
  }

  ReplicaProcesses processes_;
};

}  // namespace

int run_shared_job(const EngineJob& job, const LoadPart& load,
                   const std::function<int(EngineGroup* group, const ReplicaPlace* place)>& lead) {
  const std::optional<ReplicaPlace> place = replica_place();
  const auto work = [&] {
    return run_engine_job(job, load, [&](EngineGroup* group) { return lead(group, place ? &*place : nullptr); });
  };
  return place ? run_replica(*place, work) : work();
}

Share share_of(const ReplicaPlace& place) {
  return {.number = static_cast<std::size_t>(place.number), .count = static_cast<std::size_t>(place.count)};
}

std::unique_ptr<OtherShares> start_other_shares(const ReplicaPlan& plan, const std::filesystem::path& folder) {
  return std::make_unique<ShareProcesses>(plan, folder);
}

}  // namespace hone
