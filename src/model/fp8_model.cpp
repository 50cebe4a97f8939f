#include "model/fp8_model.h"

#include <map>
#include <numeric>
#include <utility>

#include "backend/fp8_fragments.h"
#include "core/block_scales.h"
#include "core/error.h"
#include "core/log.h"
#include "model/weight_layout.h"
#include "ops/fp8_linear/fp8_linear.h"
#include "ops/linear/linear.h"

namespace hone {

bool is_fp8_block(const WeightSpec& spec) { return spec.dtype == DType::kU8; }

std::string fp8_scale_name(std::string_view block) { return std::string(block) + ".scale"; }

std::int64_t fp8_scale_rows(const WeightSpec& spec) {
  std::int64_t rows = kScaleBlock;
  for (const WeightPart& part : spec.parts) {
    rows = std::gcd(std::gcd(rows, part.row), std::gcd(part.source.row, part.alternative.row));
  }
  return rows;
}

bool fp8_block_in_fragments(const WeightSpec& spec, DeviceKind device) {
  return !spec.by_e4m3 && fp8_in_fragments(device, spec.shape[0], spec.shape[1], fp8_scale_rows(spec));
}

namespace {

// Throws Error if a rank's part of a weight has parts of blocks with one scale.
void check_cuts(const WeightSpec& spec) {
  for (const WeightPart& part : spec.parts) {
    if (!part.box) continue;
    const std::vector<std::int64_t> shape = part_shape(spec, part);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == part.box->whole[i] || (part.box->offset[i] % kScaleBlock == 0 && shape[i] % kScaleBlock == 0))
        continue;
      throw Error("quantization",
                  text_of("fp8 has a scale for 128 x 128 numbers, but processes have ", shape[i], " of the ",
                          part.box->whole[i], i == 0 ? " rows of " : " columns of ", part.name),
                  "a tensor_parallel_size that leaves multiples of 128, or --quantization none");
    }
  }
}

// Says once which layers stay in bf16. Throws Error if all do.
void report_layers(std::size_t taken, std::size_t left) {
  if (taken == 0) {
    throw Error("quantization",
                text_of("is w8a8_fp8, but none of the ", left, " linear layers has dimensions that are multiples of ",
                        kScaleBlock),
                "--quantization fp8 or none");
  }
  if (left > 0) {
    log_once(text_of("w8a8_fp8: ", left, " of ", left + taken,
                     " linear layers stay in bfloat16, because their dimensions are no multiples of ", kScaleBlock));
  }
}

// Returns true if a layer with these weights multiplies whole blocks, which have one scale.
bool has_whole_blocks(const WeightSpec& spec) {
  return spec.shape[0] % kScaleBlock == 0 && spec.shape[1] % kScaleBlock == 0 && fp8_scale_rows(spec) == kScaleBlock;
}

}  // namespace

Fp8Model::Fp8Model(std::unique_ptr<Model> base, Fp8Layers layers) : WrappedModel(std::move(base)) {
  const bool multiplies = layers == Fp8Layers::kProducts;
  std::vector<WeightSpec> scales;
  std::size_t left = 0;
  for (WeightSpec& spec : specs_) {
    if (spec.kind != WeightKind::linear || spec.shape.size() != 2 || !spec.in_folder || spec.dtype) continue;
    if (multiplies && !has_whole_blocks(spec)) {
      ++left;
      continue;
    }
    check_cuts(spec);
    spec.dtype = DType::kU8;
    spec.by_e4m3 = multiplies;
    const std::int64_t rows = fp8_scale_rows(spec);
    scales.push_back({.name = fp8_scale_name(spec.name),
                      .shape = {(spec.shape[0] + rows - 1) / rows, scale_blocks(spec.shape[1])},
                      .parts = {},
                      .kind = WeightKind::table,
                      .initializer = Initializer::kZeros,
                      .dtype = DType::kF32,
                      .trainable = false,
                      .in_folder = false});
  }
  if (multiplies) report_layers(scales.size(), left);
  specs_.insert(specs_.end(), scales.begin(), scales.end());
  check_specs(specs_);
}

Program Fp8Model::adapted(Program program, const TraceUse& use) const {
  HONE_ASSERT(!use.trainable, "FP8 weights are for generation");
  const Program traced = WrappedModel::adapted(std::move(program), use);
  std::map<std::string_view, const WeightSpec*> blocks;
  for (const WeightSpec& spec : specs_) {
    if (is_fp8_block(spec)) blocks.emplace(spec.name, &spec);
  }
  const auto spec_of = [&](const Value& value) -> const WeightSpec* {
    const auto found = value.role == Role::kWeight ? blocks.find(value.name) : blocks.end();
    return found != blocks.end() ? found->second : nullptr;
  };
  ProgramRewriter rewriter(traced, {.retype = [&](const Value& value) {
                             Type type = value.type;
                             if (spec_of(value) != nullptr) type.dtype = DType::kU8;
                             return type;
                           }});
  for (const Node& node : traced.nodes()) {
    const WeightSpec* spec =
        node.op->name() == "linear" ? spec_of(traced.value(node.inputs[LinearIn::weight])) : nullptr;
    if (spec == nullptr) {
      rewriter.replay(node);
      continue;
    }
    HONE_ASSERT(!node.attributes.as<LinearAttributes>().f32_output, "the output of ", spec->name, " is f32");
    Program& to = rewriter.program();
    to.set_scope(node.scope);
    to.set_phase(node.phase);
    const std::string name = fp8_scale_name(spec->name);
    const std::int64_t rows = fp8_scale_rows(*spec);
    const ValueId known = to.find(Role::kWeight, name);
    const Type type{DType::kF32, {(spec->shape[0] + rows - 1) / rows, scale_blocks(spec->shape[1])}};
    const Tensor scale = known != kNoValue ? to.tensor(known) : to.weight(name, type, false, true);
    const Tensor bias = node.inputs.size() > LinearIn::bias ? rewriter.mapped(node.inputs[LinearIn::bias]) : Tensor();
    rewriter.map(node.outputs[0],
                 fp8_linear(rewriter.mapped(node.inputs[LinearIn::x]), rewriter.mapped(node.inputs[LinearIn::weight]),
                            scale, bias, {.scale_rows = rows, .quantizes_x = spec->by_e4m3}));
  }
  return rewriter.finish();
}

}  // namespace hone
