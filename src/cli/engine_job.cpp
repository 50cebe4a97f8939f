#include "cli/engine_job.h"

#include <utility>

#include "checkpoint/model_directory.h"
#include "cli/training_job.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "engine/follower.h"

namespace hone {
namespace {

int work_in_group(const EngineJob& engine_job, const Job& job, const LoadPart& load,
                  const std::function<int(EngineGroup* group)>& lead) {
  if (!job.is_first()) ignore_interrupts();
  if (!engine_job.model.empty()) {
    (void)prepare_in_turn(job, [&] { return resolve_model(engine_job.model); });
  }
  EngineGroup group(open_device(engine_job.device), *job.peers());
  if (!group.leads()) {
    LoadedModel loaded = load(&group);
    follow_engine(group, *loaded.model, loaded.tokenizer, std::move(loaded.weights));
    return 0;
  }
  int code = 0;
  try {
    code = lead(&group);
  } catch (const Interrupted&) {
    group.end();
    throw;
  }
  group.end();
  return code;
}

}  // namespace

int run_engine_job(const EngineJob& engine_job, const LoadPart& load,
                   const std::function<int(EngineGroup* group)>& lead) {
  const auto size = static_cast<int>(engine_job.tensor_parallel_size);
  if (size == 1) return lead(nullptr);
  const JobPlace place = job_place();
  if (place.is_job() && place.size != size) {
    throw Error("tensor_parallel_size",
                text_of("is ", size, ", but the launcher has started ", place.size, " processes"), "start as many");
  }
  LocalRanks ranks;
  // Before the ranks are there, which would wait for a download no longer than for any other answer.
  if (!place.is_job() && !engine_job.model.empty()) (void)resolve_model(engine_job.model);
  if (!place.is_job()) ranks = {.count = size, .total = size, .converses = engine_job.converses};
  return run_ranks(ranks, place, engine_job.answer_limit,
                   [&](const Job& job) { return work_in_group(engine_job, job, load, lead); });
}

}  // namespace hone
