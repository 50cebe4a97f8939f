// Compiles traced programs: applies the passes in a fixed order.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "backend/device.h"
#include "compile/registry.h"
#include "passes/fp8.h"
#include "passes/fusion.h"
#include "passes/gradient.h"
#include "passes/pipeline.h"
#include "passes/recompute.h"
#include "passes/shard.h"
#include "program/program.h"

namespace hone {

// Options for compiling the programs of a run.
struct CompileOptions {
  DType dtype = DType::kF32;             // type given to weights and states that were traced in f32
  DeviceKind device = DeviceKind::kCpu;  // device for which recomputation plans memory
  Recompute recompute = Recompute::kNone;
  std::size_t activation_budget = 0;  // bytes that the arena may take, for recomputation
  GradientAccumulation gradients = GradientAccumulation::kWide;
  OverwrittenGradients overwritten = {};  // the update does not clear these; the programs of a step write the same ones
  bool offload = false;                   // keep activations in host memory (passes/offload.h)
  FusionScope inference_reach = FusionScope::kInference;    // fusion in programs without gradients
  std::shared_ptr<const Fp8Weights> fp8_weights = nullptr;  // whose products are in FP8 (passes/fp8.h); null: none are
  bool holds_fp8_weights = false;  // a training program may hold their copies (Fp8Copies::kHeld), if the budget allows
  std::shared_ptr<const WeightShares> shares = nullptr;  // division over the ranks of a job; null: nothing is divided
  std::shared_ptr<const StageCut> stage = nullptr;       // the stage of a pipeline to compile; null: all of the program
};

// Applies the passes of hone and those of `passes` to traced programs. The registry must outlive the compiler.
class Compiler {
 public:
  explicit Compiler(const CompileOptions& options, const PassRegistry& passes = pass_registry())
      : options_(options), passes_(passes) {}

  // Compiles a program without gradients: evaluation, a reference model, generation.
  [[nodiscard]] Program inference(Program traced) const;
  // Compiles a program and its backward pass from the output `loss` [1]; weight gradients accumulate. The program ends
  // by setting kAccumulatedFlag if it reads it. A stage of a pipeline that is not the last starts from what it sends.
  // Throws Defect if the program has no such output.
  [[nodiscard]] Program training(Program traced, std::string_view loss) const;
  // Compiles an optimizer update. Its types stay as the optimizer's rules declared them.
  [[nodiscard]] Program update(Program traced) const;

  [[nodiscard]] const CompileOptions& options() const { return options_; }

 private:
  // Sets the types of a traced program and cuts out the options' stage, if there is one.
  [[nodiscard]] Program typed(Program traced, ProgramKind kind) const;
  // Adds products in FP8, gradients, recomputation and offload to a program whose types are final. budget: bytes of the
  // arena.
  [[nodiscard]] Program differentiated(const Program& typed, std::string_view loss, std::size_t budget) const;
  // The same with weights and gradients divided over the ranks of a job, if they are.
  [[nodiscard]] Program divided(const Program& typed, std::string_view loss) const;
  [[nodiscard]] Program with(Program program, PassStage place, ProgramKind kind) const {
    return passes_.run(std::move(program), place, kind, options_);
  }

  CompileOptions options_;
  const PassRegistry& passes_;
};

}  // namespace hone
