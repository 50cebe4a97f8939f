#include "train/pipeline.h"

#include <algorithm>

#include "core/error.h"
#include "train/stage_programs.h"

namespace hone {
namespace {

Collective& pipeline_of_thread() {
  HONE_ASSERT(current_pipeline_collective() != nullptr, "a stage runs without its pipeline");
  return *current_pipeline_collective();
}

std::unique_ptr<Collective> make_ends(Workspace& workspace, const StageModel& model, const Job& job) {
  bool any = false;
  for (std::size_t i = 0; i < model.base().weights().size(); ++i) any = any || model.is_shared(i);
  if (!any) return nullptr;
  const int last = model.stages() - 1;
  std::vector<int> group{job.rank()};
  if (job.stage() == 0 || job.stage() == last) {
    group = {job.rank_of(0, job.data_rank(), job.tensor_rank()), job.rank_of(last, job.data_rank(), job.tensor_rank())};
  }
  return make_collective(workspace.store(kWeightStore).device(), *job.peers(), std::move(group));
}

}  // namespace

Pipeline::Pipeline(Workspace& workspace, const StageModel& model, const Job& job)
    : workspace_(workspace),
      model_(model),
      shape_(shape_of(model)),
      stages_(pipeline_of_thread()),
      ends_(make_ends(workspace, model, job)),
      numbers_(model) {
  for (std::int64_t slot = 0; slot < numbers_.count(); ++slot) slots_.push_back(slot_of(slot_store(slot)));
}

Pipeline::Slot Pipeline::slot_of(const std::string& store) const {
  Slot slot;
  const TensorStore& tensors = workspace_.store(store);
  // Both ends of an exchange have the tensors in the order of their numbers.
  std::vector<NamedType> ordered = tensors.tensors();
  std::ranges::sort(ordered, {}, [](const NamedType& tensor) { return crossing_number(tensor.name); });
  for (const NamedType& tensor : ordered) {
    const Piece region(tensors.data(tensor.name), tensor.type.bytes());
    if (is_received(tensor.name)) slot.received.push_back(region);
    if (is_sent(tensor.name)) slot.sent.push_back(region);
    if (is_received_gradient(tensor.name)) slot.gradients_of_received.push_back(region);
    if (is_sent_gradient(tensor.name)) slot.gradients_of_sent.push_back(region);
  }
  return slot;
}

void Pipeline::exchange(int stage, std::span<const Piece> out, std::span<const Piece> in) {
  stages_.together([&] {
    for (std::size_t i = 0; i < std::max(out.size(), in.size()); ++i) {
      stages_.exchange(stage, i < out.size() ? out[i] : Piece(), i < in.size() ? in[i] : Piece());
    }
  });
}

template <class SlotOf>
void Pipeline::exchange(const PipelineAction& action, const SlotOf& slot) {
  const bool next = action.kind == PipelineAction::Kind::kWithNext;
  std::span<const Piece> out;
  std::span<const Piece> in;
  if (action.sent >= 0) {
    const Slot& from = slot(action.sent_chunk, action.sent);
    out = next ? from.sent : from.gradients_of_received;
  }
  if (action.received >= 0) {
    const Slot& to = slot(action.received_chunk, action.received);
    in = next ? to.gradients_of_sent : to.received;
  }
  exchange((model_.number() + shape_.stages + (next ? 1 : -1)) % shape_.stages, out, in);
}

LossSums Pipeline::train(std::span<const HostBatch> batches, double weight, const Draws& draws) {
  const auto count = static_cast<std::int64_t>(batches.size());
  const auto slot = [&](int chunk, std::int64_t i) -> const Slot& {
    return slots_[static_cast<std::size_t>(numbers_.of(chunk, i))];
  };
  LossLaunches launches(workspace_.executable(kTrainingProgram), batches.size(), draws.seed, draws.step, draws.first);
  const auto launch = [&](std::string_view program, const PipelineAction& action) {
    const std::int64_t i = action.micro_batch;
    launches.launch_in(workspace_.executable(in_slot(program, numbers_.of(action.chunk, i))),
                       batches[static_cast<std::size_t>(i)], weight, i);
  };
  const bool sums = workspace_.has_program(kSummingProgram);
  for (const PipelineAction& action : one_forward_one_backward(shape_, model_.number(), count)) {
    switch (action.kind) {
      case PipelineAction::Kind::kForward:
        if (!model_.is_last(action.chunk)) launch(kStageForwardProgram, action);
        break;
      case PipelineAction::Kind::kBackward:
        launch(sums && action.micro_batch + 1 == count ? kSummingProgram : kTrainingProgram, action);
        break;
      case PipelineAction::Kind::kWithPrevious:
      case PipelineAction::Kind::kWithNext:
        exchange(action, slot);
        break;
    }
  }
  sum_shared();
  LossSums result = launches.sums();
  stages_.check();
  if (ends_ != nullptr) ends_->check();
  return result;
}

void Pipeline::sum_shared() {
  const TensorStore& gradients = workspace_.store(kGradientStore);
  for (const std::string& name : model_.shared()) {
    const Type& type = gradients.type(name);
    ends_->all_reduce(gradients.data(name), type.dtype, static_cast<std::size_t>(type.elements()));
  }
}

void Pipeline::evaluate(std::span<const HostBatch> batches, LossSums& sums) {
  std::vector<Slot> slots;  // [chunks]
  slots.reserve(static_cast<std::size_t>(shape_.chunks));
  for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
    slots.push_back(slot_of(in_slot(kEvaluationSlot, evaluation_slot(model_, chunk))));
  }
  LossLaunches launches(workspace_.executable(kEvaluationProgram), batches.size());
  for (const PipelineAction& action :
       forward_only(shape_, model_.number(), static_cast<std::int64_t>(batches.size()))) {
    if (action.kind == PipelineAction::Kind::kForward) {
      Executable& executable =
          workspace_.executable(in_slot(kEvaluationProgram, evaluation_slot(model_, action.chunk)));
      launches.launch_in(executable, batches[static_cast<std::size_t>(action.micro_batch)], 1.0, action.micro_batch);
    } else {
      exchange(action, [&](int chunk, std::int64_t) -> const Slot& { return slots[static_cast<std::size_t>(chunk)]; });
    }
  }
  launches.add_to(sums);
  stages_.check();
}

std::unique_ptr<Pipeline> make_pipeline(Workspace& workspace, const Model& model, const Job& job) {
  return model.stage() != nullptr ? std::make_unique<Pipeline>(workspace, *model.stage(), job) : nullptr;
}

}  // namespace hone
