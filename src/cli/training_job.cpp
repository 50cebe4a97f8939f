#include "cli/training_job.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "backend/gpu_collective.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "system/peers.h"
#include "train/launch.h"

namespace hone {
namespace {

// Calls work(). A failure that is not another rank's is sent to all ranks, and its message then names this rank. If a
// rank below has failed too, its message is enough.
int report_failures(Peers& peers, const std::function<int()>& work) {
  const auto tell = [&](const std::exception& error) {
    const bool reported = peers.has_failed_below();
    peers.fail(error.what());
    return reported;
  };
  try {
    return work();
  } catch (const JobFailure&) {
    peers.fail("");
    throw;
  } catch (const Error& error) {
    if (tell(error)) throw JobFailure("", error.what(), {}, true);
    throw Error(peers.name_of(peers.rank()), error.what());
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    (void)tell(error);
    throw;
  }
}

}  // namespace

int run_ranks(const LocalRanks& ranks, const JobPlace& place, std::int64_t answer_limit,
              const std::function<int(const Job& job)>& work) {
  if (ranks.count > 0) return run_processes(ranks, own_arguments());
  if (!place.is_job()) return work({});
  set_quiet(false);
  choose_gpu(place.local_rank);
  const std::chrono::milliseconds limit = std::chrono::seconds(answer_limit);
  Peers peers(place, {.join = std::min<std::chrono::milliseconds>(limit, kJoinLimit), .answer = limit});
  return report_failures(peers, [&] { return work(Job(&peers)); });
}

int run_as_job(TrainingOptions& options, const std::function<int(const Job& job)>& work, const ChooseLayout& choose) {
  const JobPlace place = job_place();
  const LocalRanks ranks = ranks_to_start(options, place);
  options.num_processes = processes_of(options, place);
  check_mesh(options);
  options.job_rank = place.rank;
  const auto settle = [&](const Job& job) {
    if (!choose) return;
    choose(job);
    check_mesh(options);
  };
  if (options.dry_run && place.rank != 0) return 0;
  if (options.dry_run) {
    settle({});
    return work({});
  }
  return run_ranks(ranks, place, options.ddp_timeout, [&](const Job& job) {
    settle(job);
    return work(Job(job.peers(), options.mesh().shape()));
  });
}

}  // namespace hone
