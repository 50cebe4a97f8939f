#include "train/stage_programs.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <utility>

#include "core/error.h"
#include "model/stage_model.h"
#include "passes/shard.h"
#include "passes/stage_states.h"
#include "passes/sum_gradients.h"
#include "program/memory_plan.h"
#include "train/pipeline_schedule.h"

namespace hone {
namespace {

ProgramUse slot_use(std::string store) { return {.states = {.name = std::move(store), .region = Region::kTrain}}; }

// Returns the bytes of the states of a slot in which these programs run.
std::size_t slot_bytes(std::initializer_list<const Program*> programs) {
  std::map<std::string, std::size_t> bytes;
  for (const Program* program : programs) {
    for (const Value& value : program->values()) {
      if (value.producer < 0 && value.role == Role::kState) bytes[value.name] = align_up(value.type.bytes());
    }
  }
  std::size_t sum = 0;
  for (const auto& [name, size] : bytes) sum += size;
  return sum;
}

// Compiles the programs of the chunks of a stage. Weights and gradients are divided over ranks once the passes of a
// chunk are separate, so that each program gathers what it reads.
class ChunkTracer {
 public:
  ChunkTracer(const Model& model, LossProgramOptions options)
      : model_(model), stage_(*model.stage()), options_(std::move(options)), slots_(stage_) {}

  // Returns the programs of each chunk; that with the head has no forward program.
  std::vector<SplitStage> run() {
    const std::size_t budget = options_.compile.activation_budget;
    if (options_.compile.recompute != Recompute::kLayers) {
      std::vector<SplitStage> chunks = keep(Recompute::kNone, 0);
      if (options_.compile.recompute == Recompute::kNone || taken(chunks) <= budget) {
        return with_head(std::move(chunks), budget);
      }
      std::vector<SplitStage> some = keep_most(chunks, budget);
      std::vector<SplitStage> again = with_head(recompute_all(budget), budget);
      return some.empty() || flops_of(again) <= flops_of(some) ? std::move(again) : std::move(some);
    }
    return with_head(recompute_all(budget), budget);
  }

 private:
  [[nodiscard]] LossProgramOptions of_chunk(int chunk) const {
    LossProgramOptions options = options_;
    options.compile.stage = stage_.cut(chunk);
    return options;
  }

  // The options of a program that is divided over ranks later.
  [[nodiscard]] LossProgramOptions undivided(int chunk, Recompute recompute) const {
    LossProgramOptions options = of_chunk(chunk);
    options.compile.shares = nullptr;
    options.compile.recompute = recompute;
    return options;
  }
  [[nodiscard]] Program divided(Program program) const {
    return options_.compile.shares ? shard_weights(program, *options_.compile.shares) : std::move(program);
  }
  [[nodiscard]] std::size_t arena_of(const Program& program) const {
    return plan_memory(program, options_.compile.device).arena;
  }

  // Bytes of the slots of the chunks that have two programs.
  [[nodiscard]] std::size_t bytes_of_slots(const std::vector<SplitStage>& chunks) const {
    std::size_t bytes = 0;
    for (int chunk = 0; chunk < stage_.chunks(); ++chunk) {
      if (stage_.is_last(chunk)) continue;
      const SplitStage& programs = chunks[static_cast<std::size_t>(chunk)];
      bytes += static_cast<std::size_t>(slots_.count_of(chunk)) * slot_bytes({&programs.forward, &programs.backward});
    }
    return bytes;
  }

  // Bytes that programs take but those of the chunk with the head.
  [[nodiscard]] std::size_t taken(const std::vector<SplitStage>& chunks) const {
    std::size_t arena = 0;
    for (int chunk = 0; chunk < stage_.chunks(); ++chunk) {
      if (stage_.is_last(chunk)) continue;
      const SplitStage& programs = chunks[static_cast<std::size_t>(chunk)];
      arena = std::max({arena, arena_of(programs.forward), arena_of(programs.backward)});
    }
    return arena + bytes_of_slots(chunks);
  }

  // Adds the programs of the chunk with the head, which has the memory that the others leave.
  [[nodiscard]] std::vector<SplitStage> with_head(std::vector<SplitStage> chunks, std::size_t budget) const {
    for (int chunk = 0; chunk < stage_.chunks(); ++chunk) {
      if (!stage_.is_last(chunk)) continue;
      LossProgramOptions options = of_chunk(chunk);
      options.compile.activation_budget = budget - std::min(budget, bytes_of_slots(chunks));
      chunks[static_cast<std::size_t>(chunk)].backward =
          exchange_by_states(trace_training(model_, options), StageSends::kGradients);
    }
    return chunks;
  }
  // FLOPs of a micro-batch in all chunks.
  [[nodiscard]] static double flops_of(const std::vector<SplitStage>& chunks) {
    double flops = 0;
    for (const SplitStage& programs : chunks) flops += programs.forward.cost().flops + programs.backward.cost().flops;
    return flops;
  }
  // Returns true if the chunk with the head fits next to the slots of the others.
  [[nodiscard]] bool head_fits(const std::vector<SplitStage>& chunks, std::size_t budget) const {
    for (int chunk = 0; chunk < stage_.chunks(); ++chunk) {
      if (!stage_.is_last(chunk)) continue;
      if (arena_of(chunks[static_cast<std::size_t>(chunk)].backward) + bytes_of_slots(chunks) > budget) return false;
    }
    return true;
  }

  // Compiles programs that keep activations from the forward to the backward program: all (kNone), or those of a
  // micro-batch that fit `room` (kAutomatic).
  [[nodiscard]] std::vector<SplitStage> keep(Recompute recompute, std::size_t room) const {
    std::vector<SplitStage> chunks(static_cast<std::size_t>(stage_.chunks()));
    for (int chunk = 0; chunk < stage_.chunks(); ++chunk) {
      if (stage_.is_last(chunk)) continue;
      LossProgramOptions options = undivided(chunk, recompute);
      options.compile.activation_budget = room;
      SplitStage parts = split_passes(trace_training(model_, options));
      chunks[static_cast<std::size_t>(chunk)] = {divided(std::move(parts.forward)), divided(std::move(parts.backward))};
    }
    return chunks;
  }

  // Returns programs that keep as much of each micro-batch as fits. Returns nothing if they do not fit with the least:
  // then the backward program must begin with the forward pass, so that only its input is kept.
  [[nodiscard]] std::vector<SplitStage> keep_most(const std::vector<SplitStage>& all, std::size_t budget) const {
    constexpr std::size_t kSteps = 32;  // of the room that is searched
    std::size_t room = 0;               // in which one micro-batch keeps all
    for (const SplitStage& programs : all) {
      room = std::max(room, arena_of(programs.forward) + arena_of(programs.backward) +
                                slot_bytes({&programs.forward, &programs.backward}));
    }
    std::vector<SplitStage> best = keep(Recompute::kAutomatic, 0);
    if (taken(best) > budget) return {};
    std::size_t low = 0;
    for (std::size_t high = kSteps; high - low > 1;) {
      const std::size_t middle = (low + high) / 2;
      std::vector<SplitStage> chunks = keep(Recompute::kAutomatic, room / kSteps * middle);
      if (taken(chunks) <= budget) {
        best = std::move(chunks);
        low = middle;
      } else {
        high = middle;
      }
    }
    best = with_head(std::move(best), budget);
    return head_fits(best, budget) ? best : std::vector<SplitStage>{};
  }

  // Compiles programs of which the backward one begins with the forward pass, and in turn keeps as much of it as the
  // memory allows.
  std::vector<SplitStage> recompute_all(std::size_t budget) {
    const auto backward = [&](int chunk, std::size_t room) {
      LossProgramOptions options = undivided(chunk, Recompute::kAutomatic);
      options.compile.activation_budget = room;
      return divided(exchange_by_states(trace_training(model_, options), StageSends::kGradients));
    };
    std::vector<SplitStage> chunks(static_cast<std::size_t>(stage_.chunks()));
    const auto for_each_split = [&](const auto& visit) {
      for (int chunk = 0; chunk < stage_.chunks(); ++chunk) {
        if (!stage_.is_last(chunk)) visit(chunk, chunks[static_cast<std::size_t>(chunk)]);
      }
    };
    for_each_split([&](int chunk, SplitStage& programs) {
      const LossProgramOptions options = undivided(chunk, Recompute::kAutomatic);
      programs = {divided(exchange_by_states(trace_training_forward(model_, options), StageSends::kValues)),
                  backward(chunk, budget)};
    });
    const std::size_t room = budget - std::min(budget, bytes_of_slots(chunks));
    for_each_split([&](int chunk, SplitStage& programs) {
      programs.backward = backward(chunk, room);
      if (!options_.compile.shares) return;
      // Whole weights and gradients take room next to the activations, so that fewer of these may be kept.
      const std::size_t arena = arena_of(programs.backward);
      if (arena > room) programs.backward = backward(chunk, room - std::min(room, arena - room));
    });
    return chunks;
  }

  const Model& model_;
  const StageModel& stage_;
  LossProgramOptions options_;
  StageSlots slots_;
};

}  // namespace

PipelineShape shape_of(const StageModel& model) { return {.stages = model.stages(), .chunks = model.chunks()}; }

StageSlots::StageSlots(const StageModel& model) : chunks_(static_cast<std::size_t>(model.chunks())) {
  for (int chunk = model.chunks(); chunk-- > 0;) {
    const std::int64_t count = most_under_way(shape_of(model), model.number(), chunk);
    HONE_ASSERT(count > 0, "chunk ", chunk, " of stage ", model.number(), " has no slot");
    chunks_[static_cast<std::size_t>(chunk)] = {.first = count_, .count = count};
    count_ += count;
  }
}

std::int64_t evaluation_slot(const StageModel& model, int chunk) { return model.chunks() - 1 - chunk; }

std::string in_slot(std::string_view program, std::int64_t slot) {
  return slot == 0 ? std::string(program) : text_of(program, " in slot ", slot);
}

std::string slot_store(std::int64_t slot) { return text_of("slot ", slot); }

void add_stage_training(Workspace& workspace, const Model& model, const LossProgramOptions& options, bool sums,
                        const ExpertGradients& experts) {
  const StageModel& stage = *model.stage();
  const StageSlots slots(stage);
  const std::vector<SplitStage> chunks = ChunkTracer(model, options).run();
  for (int chunk = 0; chunk < stage.chunks(); ++chunk) {
    const SplitStage& programs = chunks[static_cast<std::size_t>(chunk)];
    const Program summing = sums ? sum_gradients(programs.backward, experts) : Program();
    for (std::int64_t i = 0; i < slots.count_of(chunk); ++i) {
      const std::int64_t slot = slots.of(chunk, i);
      const ProgramUse use = slot_use(slot_store(slot));
      if (!stage.is_last(chunk)) workspace.add(in_slot(kStageForwardProgram, slot), programs.forward, use);
      workspace.add(in_slot(kTrainingProgram, slot), programs.backward, use);
      if (sums) workspace.add(in_slot(kSummingProgram, slot), summing, use);
    }
  }
}

void add_stage_evaluation(Workspace& workspace, const Model& model, const LossProgramOptions& options) {
  const StageModel& stage = *model.stage();
  for (int chunk = 0; chunk < stage.chunks(); ++chunk) {
    LossProgramOptions of_chunk = options;
    of_chunk.compile.stage = stage.cut(chunk);
    const std::int64_t slot = evaluation_slot(stage, chunk);
    workspace.add(in_slot(kEvaluationProgram, slot),
                  exchange_by_states(trace_evaluation(model, of_chunk), StageSends::kValues),
                  slot_use(in_slot(kEvaluationSlot, slot)));
  }
}

std::vector<std::string> micro_batch_programs(const Model& model) {
  const StageModel* const stage = model.stage();
  if (stage == nullptr) return {kTrainingProgram};
  const StageSlots slots(*stage);
  std::vector<std::string> names;
  for (int chunk = 0; chunk < stage->chunks(); ++chunk) {
    if (!stage->is_last(chunk)) names.push_back(in_slot(kStageForwardProgram, slots.first(chunk)));
    names.push_back(in_slot(kTrainingProgram, slots.first(chunk)));
  }
  return names;
}

BatchWork work_of_training(const Workspace& workspace, const Model& model, std::int64_t tokens, int context_size) {
  BatchWork work;
  for (const std::string& name : micro_batch_programs(model)) {
    const BatchWork program = work_of(workspace.program(name), tokens, context_size);
    work.per_token += program.per_token;
    work.per_pair += program.per_pair;
  }
  return work;
}

}  // namespace hone
