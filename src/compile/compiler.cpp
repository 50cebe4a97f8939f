#include "compile/compiler.h"

#include <utility>

#include "core/error.h"
#include "ops/fill/fill.h"
#include "passes/offload.h"
#include "passes/precision.h"
#include "program/memory_plan.h"

namespace hone {
namespace {

// The program and its backward pass, from the output named `loss`.
Program with_gradients(const Program& program, std::string_view loss, GradientSums sums, FusionReach reach) {
  Program result = fuse(program, reach);
  for (const Output& output : result.outputs()) {
    if (output.name != loss) continue;
    const Tensor value = result.tensor(output.value);
    const GradientSeed seed{value, fill(result, value.type(), 1.0)};
    append_gradients(result, {&seed, 1}, {}, sums);
    return fuse(result, reach);
  }
  throw Defect(text_of("the program has no output ", loss));
}

}  // namespace

Program Compiler::inference(Program traced) const {
  constexpr ProgramKind kKind = ProgramKind::inference;
  Program program = with_precision(with(std::move(traced), PassPlace::traced, kKind), options_.dtype);
  program = fuse(with(std::move(program), PassPlace::typed, kKind), options_.inference_reach);
  return with(std::move(program), PassPlace::finished, kKind);
}

Program Compiler::training(Program traced, std::string_view loss) const {
  constexpr ProgramKind kKind = ProgramKind::training;
  Program program = with_precision(with(std::move(traced), PassPlace::traced, kKind), options_.dtype);
  program = differentiated(with(std::move(program), PassPlace::typed, kKind), loss);
  return with(std::move(program), PassPlace::finished, kKind);
}

Program Compiler::update(Program traced) const {
  constexpr ProgramKind kKind = ProgramKind::update;
  Program program = with(with(std::move(traced), PassPlace::traced, kKind), PassPlace::typed, kKind);
  return with(std::move(program), PassPlace::finished, kKind);
}

Program Compiler::differentiated(const Program& typed, std::string_view loss) const {
  // What is not kept by layers may be fused across them.
  if (options_.recompute != Recompute::layers && !options_.offload) {
    Program whole = with_gradients(typed, loss, options_.gradients, FusionReach::program);
    if (options_.recompute == Recompute::none ||
        plan_memory(whole, options_.device).arena <= options_.activation_budget) {
      return whole;
    }
  }
  Program program = with_gradients(typed, loss, options_.gradients, FusionReach::layer);
  // What layers keep of themselves would only cross to the host and back.
  const bool keeps_least = options_.offload && options_.recompute == Recompute::layers;
  program = recompute(program, options_.recompute, keeps_least ? 0 : options_.activation_budget, options_.device);
  return options_.offload ? offload_activations(program) : program;
}

}  // namespace hone
