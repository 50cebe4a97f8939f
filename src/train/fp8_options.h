// Options of training with products in FP8 (passes/fp8.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "compile/compiler.h"
#include "core/options.h"

namespace hone {

class Model;

struct Fp8Options {
  bool fp8 = false;
  std::optional<bool> fp8_weight_quant;
  std::optional<bool> fp8_activation_quant;

  template <class Visitor>
  void fields(Visitor& v) {
    v("fp8", fp8,
      "Multiply in FP8 in the linear layers: operands in e4m3 with a scale for each 128 numbers, sums in f32; weights "
      "and everything else stay in bfloat16");
    v.alias("use_fp8", "fp8");
    v("fp8_weight_quant", fp8_weight_quant, "fp8 quantizes weights and activations; only true is possible with it");
    v("fp8_activation_quant", fp8_activation_quant,
      "fp8 quantizes weights and activations; only true is possible with it");
  }
};

// Checks the options with each other. Throws Error that begins with the place recorded in `input`.
void check_fp8(const Fp8Options& options, std::int64_t tensor_parallel_size, const OptionInput& input);

// Returns the weights whose products are in FP8: matrices of linear layers and experts with dimensions that are
// multiples of 128. Logs once what stays in bfloat16. Null without fp8. Throws Error if the weights are not bfloat16,
// no weight fits or the GPU on which they are to run cannot multiply so. gpu: the run is on this machine's GPU.
[[nodiscard]] std::shared_ptr<const Fp8Weights> fp8_weights_of(const Fp8Options& options, const Model& model,
                                                               DType dtype, bool gpu);

// Returns the capacity of a program for this number of tokens: with fp8, rounded up to a multiple of 128 of which each
// rank of a context group has a multiple of kQuantizedRows.
[[nodiscard]] std::int64_t fp8_capacity(const Fp8Options& options, std::int64_t tokens,
                                        std::int64_t context_parallel_size = 1);

}  // namespace hone
