#include "train/setup.h"

#include "core/error.h"

namespace hone {
namespace {

constexpr double kDefaultActivationGib = 4.0;

Recompute recompute_policy(Recomputation choice) {
  switch (choice) {
    case Recomputation::off:
      return Recompute::none;
    case Recomputation::on:
      return Recompute::layers;
    case Recomputation::automatic:
      break;
  }
  return Recompute::automatic;
}

}  // namespace

namespace {

GradientSums gradient_sums(const TrainingOptions& options) {
  return options.gradient_dtype == GradientType::bfloat16 ? GradientSums::as_weights : GradientSums::wide;
}

}  // namespace

LossProgramOptions loss_program_options(const TrainingOptions& options, const Capacity& capacity, DType dtype) {
  const double gib = options.activation_memory_gib.value_or(kDefaultActivationGib);
  return {.capacity = capacity,
          .dtype = dtype,
          .recompute = recompute_policy(options.gradient_checkpointing),
          .activation_budget = static_cast<std::size_t>(gib * 1024.0 * 1024.0 * 1024.0),
          .device = open_device(options.device).kind(),
          .gradients = gradient_sums(options)};
}

OptimizerOptions optimizer_options(const TrainingOptions& options) {
  return {.adamw = {.beta1 = options.adam_beta1,
                    .beta2 = options.adam_beta2,
                    .epsilon = options.adam_epsilon,
                    .weight_decay = options.weight_decay,
                    .seed = options.seed},
          .states_as_weights = options.optim == OptimizerType::adamw_bf16,
          .gradients = gradient_sums(options)};
}

void check_plan(const Device& device, std::size_t before, const MemoryBreakdown& memory) {
  const std::size_t held = device.allocated_bytes() - before;
  HONE_ASSERT(held == memory.total(), "the run holds ", held, " bytes, the plan said ", memory.total());
}

}  // namespace hone
