// What becomes of a traced program before it runs: the passes, and their order.
#pragma once

#include <cstddef>
#include <string_view>

#include "backend/device.h"
#include "compile/registry.h"
#include "passes/fusion.h"
#include "passes/gradient.h"
#include "passes/recompute.h"
#include "program/program.h"

namespace hone {

// How the programs of a run are compiled.
struct CompileOptions {
  DType dtype = DType::f32;             // of weights and states that were traced in f32
  DeviceKind device = DeviceKind::cpu;  // whose memory recomputation plans
  Recompute recompute = Recompute::none;
  std::size_t activation_budget = 0;  // bytes of the arena, for recomputation
  GradientSums gradients = GradientSums::wide;
  bool offload = false;                                // activations wait in the host's memory (passes/offload.h)
  FusionReach inference_reach = FusionReach::program;  // what programs without gradients fuse
};

class Compiler {
 public:
  explicit Compiler(const CompileOptions& options, const PassRegistry& passes = pass_registry())
      : options_(options), passes_(passes) {}

  // A program that is run as it was traced: evaluation, a reference model, generation.
  [[nodiscard]] Program inference(Program traced) const;
  // A program with the gradients of its output `loss` [1], which accumulate. Throws Defect where it has no such output.
  [[nodiscard]] Program training(Program traced, std::string_view loss) const;
  // The program of an optimizer's update, whose types are those that its rules asked for.
  [[nodiscard]] Program update(Program traced) const;

  [[nodiscard]] const CompileOptions& options() const { return options_; }

 private:
  // Gradients, recomputation and offload of a typed program.
  [[nodiscard]] Program differentiated(const Program& typed, std::string_view loss) const;
  [[nodiscard]] Program with(Program program, PassPlace place, ProgramKind kind) const {
    return passes_.run(std::move(program), place, kind, options_);
  }

  CompileOptions options_;
  const PassRegistry& passes_;
};

}  // namespace hone
