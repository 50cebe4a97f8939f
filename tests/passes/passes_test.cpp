// Tests of the passes: the result of each on a small program, compared as text with tests/fixtures/passes.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/measured_rates.h"
#include "core/error.h"
#include "ops/add/add.h"
#include "ops/fill/fill.h"
#include "ops/kv_append/kv_append.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/scale/scale.h"
#include "ops/swiglu/swiglu.h"
#include "passes/fusion.h"
#include "passes/gradient.h"
#include "passes/offload.h"
#include "passes/precision.h"
#include "passes/recompute.h"
#include "passes/shard.h"
#include "passes/small_program.h"
#include "passes/sum_gradients.h"
#include "program/memory_plan.h"
#include "program/text.h"
#include "support/golden.h"

namespace hone::test {
namespace {

std::size_t arena_of(const Program& program) { return plan_memory(program, DeviceKind::kCpu).arena; }

std::int64_t count_nodes(const Program& program, std::string_view op) {
  return std::count_if(program.nodes().begin(), program.nodes().end(),
                       [&](const Node& node) { return node.op->name() == op; });
}

TEST(Precision, Golden) {
  expect_golden("passes/precision.txt", to_text(with_precision(small_program(), DType::kBf16)));
}

TEST(Precision, ChangesWeightsAndStatesOfF32Alone) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {2, 8}});
  (void)program.weight("w", {DType::kF32, {8}}, false);
  (void)program.weight("wide", {DType::kF64, {8}});
  (void)program.weight("ids", {DType::kI32, {8}});
  (void)program.state("pages", {DType::kF32, {3}});
  program.output("y", scale(x, 1.0));
  const Program narrow = with_precision(program, DType::kBf16);
  const auto dtype = [&](Role role, std::string_view name) { return narrow.value(narrow.find(role, name)).type.dtype; };
  EXPECT_EQ(dtype(Role::kInput, "x"), DType::kF32);
  EXPECT_EQ(dtype(Role::kWeight, "w"), DType::kBf16);
  EXPECT_EQ(dtype(Role::kWeight, "wide"), DType::kF64);
  EXPECT_EQ(dtype(Role::kWeight, "ids"), DType::kI32);
  EXPECT_EQ(dtype(Role::kState, "pages"), DType::kBf16);
  EXPECT_FALSE(narrow.value(narrow.find(Role::kWeight, "w")).trainable);
  EXPECT_EQ(to_text(with_precision(program, DType::kF32)), to_text(program));
}

TEST(Fusion, Golden) { expect_golden("passes/fuse.txt", to_text(fuse(small_program()))); }

TEST(Fusion, HappensOnce) {
  const Program fused = fuse(small_program());
  EXPECT_EQ(count_nodes(fused, "add_rms_norm"), 2);
  EXPECT_EQ(to_text(fuse(fused)), to_text(fused));
}

// A program with an addition followed by a norm, and the number of fusions expected in it.
struct FusionCase {
  std::string text;
  std::int64_t fusions;
};

TEST(Fusion, OnlyWhereNothingElseChanges) {
  register_operations();
  const std::string head =
      "%0: f32[4, 8] = input \"x\"\n%1: f32[8] = weight \"w\" trainable\n%9: f32[8] = input \"v\"\n"
      "%2: f32[4, 8] = add(%0, %0) forward\n";
  const std::string norm = "%3: f32[4, 8], %4: f32[4] = rms_norm(%2, %1) {epsilon=1e-05} forward\n";
  const std::string tail = "output \"y\" = %3\n";
  const std::vector<FusionCase> cases{
      {head + norm + tail, 1},
      {head + norm + "%5: f32[4, 8] = add(%2, %3) forward\noutput \"z\" = %5\n" + tail, 1},
      {head + norm + tail + "output \"sum\" = %2\n", 1},
      {head + "%5: f32[4, 8] = scale(%0) {factor=2} forward\n" + norm + tail + "output \"z\" = %5\n", 1},
      // The weight is declared after the addition; bound values still come before the fused node.
      {head + "%6: f32[8] = weight \"late\" trainable\n" +
           "%3: f32[4, 8], %4: f32[4] = rms_norm(%2, %6) {epsilon=1e-05} forward\n" + tail,
       1},
      // Another node reads the sum before the norm.
      {head + "%5: f32[4, 8] = scale(%2) {factor=2} forward\n" + norm + tail + "output \"z\" = %5\n", 0},
      // The weight is computed by a node.
      {head + "%5: f32[8] = scale(%1) {factor=2} forward\n" +
           "%3: f32[4, 8], %4: f32[4] = rms_norm(%2, %5) {epsilon=1e-05} forward\n" + tail,
       0},
      // Another node between the two reads the weight: fusion would change the summation order of its gradient.
      {head + "%5: f32[8] = scale(%1) {factor=2} forward\n" + norm + tail + "output \"z\" = %5\n", 0},
      // The norm does not read the sum.
      {head + "%3: f32[4, 8], %4: f32[4] = rms_norm(%0, %1) {epsilon=1e-05} forward\n" + tail, 0},
      // There is no sum.
      {"%0: f32[4, 8] = input \"x\"\n%1: f32[8] = weight \"w\"\n"
       "%3: f32[4, 8], %4: f32[4] = rms_norm(%0, %1) {epsilon=1e-05} forward\n" +
           tail,
       0},
  };
  for (const FusionCase& one : cases) {
    const Program fused = fuse(program_from_text(one.text));
    EXPECT_EQ(count_nodes(fused, "add_rms_norm"), one.fusions) << one.text;
    EXPECT_EQ(fused.outputs().size(), program_from_text(one.text).outputs().size());
    for (const Node& node : fused.nodes()) {
      if (node.op->name() == "add_rms_norm") {
        EXPECT_EQ(node.attributes.as<RmsNormAttributes>().epsilon, 1e-5);
      }
    }
  }
}

TEST(Fusion, KeepsToALayer) {
  register_operations();
  const auto fusions = [](const std::string& first, const std::string& second) {
    const Program program = program_from_text(
        "%0: f32[4, 8] = input \"x\"\n%1: f32[8] = weight \"w\"\n%2: f32[4, 8] = add(%0, %0) @" + first +
        " forward\n%3: f32[4, 8], %4: f32[4] = rms_norm(%2, %1) {epsilon=1e-06} @" + second + " forward\n");
    return count_nodes(fuse(program), "add_rms_norm");
  };
  EXPECT_EQ(fusions("layers.0.attention", "layers.0.mlp"), 1);
  EXPECT_EQ(fusions("layers.0.mlp", "layers.1.attention"), 0);
  EXPECT_EQ(fusions("layers.1", "layers.10"), 0);
  EXPECT_EQ(fusions("layers.1.mlp", "norm"), 0);
}

// A fused operation that replaces `count` consecutive scale nodes.
class FusedScales final : public FusedOp {
 public:
  FusedScales(std::string name, int place, std::size_t count) : name_(std::move(name)), place_(place), count_(count) {}
  std::string_view name() const override { return name_; }
  OpCategory category() const override { return OpCategory::kOther; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override { return {required(inputs, 0, name())}; }
  int fusion_priority() const override { return place_; }
  std::optional<Fusion> fuse(const Program& program, std::size_t first) const override {
    Fusion fusion{.nodes = {}, .inputs = program.nodes()[first].inputs, .attributes = {}, .outputs = {}};
    for (std::size_t i = first; i < first + count_; ++i) {
      if (i >= program.nodes().size() || program.nodes()[i].op->name() != "scale") return std::nullopt;
      fusion.nodes.push_back(i);
    }
    fusion.outputs = {{program.nodes()[fusion.nodes.back()].outputs[0], 0}};
    return fusion;
  }

 private:
  std::string name_;
  int place_;
  std::size_t count_;
};

TEST(Fusion, OrderIsThatOfPlacesWhateverTheNames) {
  register_operations();
  Program program;
  Tensor x = program.input("x", {DType::kF32, {4}});
  for (int i = 0; i < 5; ++i) x = scale(x, 2.0);
  program.output("y", x);
  // The triple is tried first and fuses three of the five nodes; the pair fuses the other two. The opposite order would
  // fuse two pairs.
  const auto nodes = [&](const std::string& pair_name, const std::string& triple_name, bool pair_first) {
    const FusedScales pair(pair_name, 20, 2);
    const FusedScales triple(triple_name, 10, 3);
    OpRegistry registry;
    registry.add(pair_first ? pair : triple);
    registry.add(pair_first ? triple : pair);
    std::vector<bool> triples;
    const Program fused = fuse(program, FusionScope::kProgram, registry);
    for (const Node& node : fused.nodes()) triples.push_back(node.op == &triple);
    return triples;
  };
  for (const bool pair_first : {false, true}) {
    EXPECT_EQ(nodes("a", "b", pair_first), (std::vector{true, false}));
    EXPECT_EQ(nodes("b", "a", pair_first), (std::vector{true, false}));
  }
}

TEST(Fusion, PlacesAreDeclaredAndDiffer) {
  register_operations();
  std::vector<std::string_view> names;
  for (const FusedOp* op : op_registry().fused()) names.push_back(op->name());
  EXPECT_EQ(names,
            (std::vector<std::string_view>{"add_layer_norm", "add_rms_norm", "linear_logprobs_joint", "rope_append",
                                           "quantize_swiglu", "quantize_swiglu_backward", "quantize_experts_swiglu",
                                           "quantize_experts_swiglu_backward", "linear_swiglu"}));
  const FusedScales one("one", 10, 2);
  const FusedScales other("other", 10, 3);
  OpRegistry registry;
  registry.add(one);
  registry.add(other);
  EXPECT_THROW((void)registry.fused(), Defect);
}

TEST(Gradients, Golden) { expect_golden("passes/append_gradients.txt", to_text(with_gradients(small_program()))); }
TEST(Gradients, GoldenInBf16) {
  expect_golden("passes/append_gradients_bf16.txt",
                to_text(with_gradients(fuse(with_precision(small_program(), DType::kBf16)))));
}

TEST(Gradients, BehindFrozenWeightsThereAreNone) {
  std::string text = to_text(small_program());
  // Only the second layer's attention matrix is trained.
  for (std::size_t at = 0; (at = text.find(" trainable", at)) != std::string::npos;) {
    const std::size_t line = text.rfind('\n', at) + 1;
    if (text.substr(line, at - line).find("layers.1.attention.matrix") != std::string::npos) {
      ++at;
    } else {
      text.erase(at, std::string_view(" trainable").size());
    }
  }
  const Program program = with_gradients(program_from_text(text));
  expect_golden("passes/append_gradients_frozen.txt", to_text(program));
  std::int64_t gradients = 0;
  for (const Value& value : program.values()) gradients += value.role == Role::kGradient ? 1 : 0;
  EXPECT_EQ(gradients, 1);
  for (const Node& node : program.nodes()) {
    if (node.phase == Phase::kBackward) {
      EXPECT_FALSE(node.scope.starts_with("layers.0")) << node.scope;
    }
  }
}

TEST(Gradients, OfWantedInputsAndNothingWhereNoneArrives) {
  register_operations();
  Program program;
  const Tensor a = program.input("a", {DType::kF32, {2}});
  const Tensor b = program.input("b", {DType::kF32, {2}});
  const Tensor y = scale(a + a, 3.0);
  const GradientSeed seed{y, fill(program, y.type(), 1.0)};
  const Tensor wanted[] = {a, b};
  const std::vector<Tensor> gradients = append_gradients(program, {&seed, 1}, wanted);
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_TRUE(gradients[0].valid());
  EXPECT_FALSE(gradients[1].valid());
  EXPECT_EQ(program.phase(), Phase::kForward);
  EXPECT_THROW((void)append_gradients(program, std::vector<GradientSeed>{{y, fill(program, {DType::kF32, {3}}, 1.0)}}),
               Defect);
}

TEST(Recompute, GoldenByLayers) {
  const Program program = with_gradients(fuse(small_program()));
  const Program again = recompute(program, Recompute::kLayers, 0, DeviceKind::kCpu);
  expect_golden("passes/recompute_layers.txt", to_text(again));
  EXPECT_LT(arena_of(again), arena_of(program));
}

TEST(Offload, Golden) {
  const Program program = with_gradients(fuse(small_program()));
  const Program offloaded = offload_activations(program);
  expect_golden("passes/offload.txt", to_text(offloaded));
  EXPECT_GT(count_nodes(offloaded, "offload"), 0);
  for (const char* op : {"offload_wait", "offload_fetch", "offload_fetch_wait"}) {
    EXPECT_EQ(count_nodes(offloaded, op), count_nodes(offloaded, "offload")) << op;
  }
  const auto in_host = std::ranges::count(offloaded.values(), Placement::kHost, &Value::placement);
  EXPECT_EQ(in_host, count_nodes(offloaded, "offload"));
}

TEST(Offload, LeavesAForwardPassAsItIs) {
  const Program program = fuse(small_program());
  EXPECT_EQ(to_text(offload_activations(program)), to_text(program));
}

// Weights and gradients of the small model on the first of two ranks. The norms have one owner each.
WeightShares small_shares(bool weights) {
  WeightShares shares{.rank = 0, .weights = weights, .cuts = {{"embedding", {0, 8, 16}}, {"norm", {0, 4, 4}}}};
  for (const char* layer : {"layers.0", "layers.1"}) {
    for (const char* block : {".attention", ".mlp"}) {
      shares.cuts[std::string(layer) + block + ".matrix"] = {0, 2, 4};
      shares.cuts[std::string(layer) + block + ".norm"] = {0, 0, 4};
    }
  }
  return shares;
}

TEST(Shard, GoldenOfGradients) {
  const Program program = with_gradients(fuse(small_program()));
  expect_golden("passes/shard_gradients.txt", to_text(shard_weights(program, small_shares(false))));
}

TEST(Shard, GoldenOfWeightsAndGradients) {
  const Program program =
      recompute(with_gradients(fuse(small_program(), FusionScope::kLayer)), Recompute::kLayers, 0, DeviceKind::kCpu);
  const Program sharded = shard_weights(program, small_shares(true));
  expect_golden("passes/shard_weights.txt", to_text(sharded));
  // All ranks do the same operations in the same order.
  WeightShares second = small_shares(true);
  second.rank = 1;
  const Program other = shard_weights(program, second);
  ASSERT_EQ(sharded.nodes().size(), other.nodes().size());
  for (std::size_t n = 0; n < other.nodes().size(); ++n) {
    EXPECT_EQ(sharded.nodes()[n].op, other.nodes()[n].op);
    EXPECT_EQ(sharded.nodes()[n].attributes.to_text(), other.nodes()[n].attributes.to_text());
  }
}

TEST(SumGradients, Golden) {
  const Program program = with_gradients(fuse(small_program()));
  const Program summed = sum_gradients(program);
  expect_golden("passes/sum_gradients.txt", to_text(summed));
  EXPECT_EQ(plan_memory(summed, DeviceKind::kCpu).arena, plan_memory(program, DeviceKind::kCpu).arena);
}

TEST(Shard, LeavesAProgramWithoutSharesAsItIs) {
  const Program program = with_gradients(small_program());
  const Program same = shard_weights(program, {.rank = 0, .weights = true, .cuts = {}});
  ASSERT_EQ(same.nodes().size(), program.nodes().size());
  for (std::size_t n = 0; n < same.nodes().size(); ++n) EXPECT_EQ(same.nodes()[n].op, program.nodes()[n].op);
}

TEST(Recompute, GoldenWithABudget) {
  const Program program = with_gradients(fuse(small_program()));
  const std::size_t most = arena_of(program);
  const std::size_t least = arena_of(recompute(program, Recompute::kLayers, 0, DeviceKind::kCpu));
  const std::size_t budget = (most + least) / 2;
  const Program again = recompute(program, Recompute::kAutomatic, budget, DeviceKind::kCpu);
  expect_golden("passes/recompute_automatic.txt", to_text(again));
  EXPECT_LE(arena_of(again), budget);
  EXPECT_LT(again.cost().flops, recompute(program, Recompute::kLayers, 0, DeviceKind::kCpu).cost().flops);
}

// Measured rates must not affect the choice of values: the test sets the copy rate to very slow, then to very fast.
TEST(Recompute, NoMeasurementChangesTheProgram) {
  const Program program = with_gradients(fuse(small_program()));
  const std::size_t budget =
      (arena_of(program) + arena_of(recompute(program, Recompute::kLayers, 0, DeviceKind::kCpu))) / 2;
  const auto automatic = [&] { return to_text(recompute(program, Recompute::kAutomatic, budget, DeviceKind::kCpu)); };
  const std::string before = automatic();
  for (const double copy : {1.0, 1e17}) {
    DeviceModel measured;
    measured.f32_flops = measured.bf16_flops = {1e9, RateSource::kMeasured};
    measured.copy_bytes = {copy, RateSource::kMeasured};
    store_measured(cpu_device(), measured);
    ASSERT_EQ(measured_model(cpu_device()).copy_bytes.per_second, copy);
    EXPECT_EQ(automatic(), before);
  }
}

TEST(Recompute, AutomaticDoesNoMoreThanItMust) {
  const Program program = with_gradients(small_program());
  const std::size_t most = arena_of(program);
  const auto automatic = [&](std::size_t budget) {
    return recompute(program, Recompute::kAutomatic, budget, DeviceKind::kCpu);
  };
  EXPECT_EQ(to_text(recompute(program, Recompute::kNone, 0, DeviceKind::kCpu)), to_text(program));
  EXPECT_EQ(to_text(automatic(most)), to_text(program));
  EXPECT_EQ(to_text(automatic(0)), to_text(recompute(program, Recompute::kLayers, 0, DeviceKind::kCpu)));
  const std::size_t least = arena_of(automatic(0));
  double flops = program.cost().flops;
  for (std::size_t budget = most; budget >= least; budget -= kAlignment) {
    const Program again = automatic(budget);
    EXPECT_LE(arena_of(again), budget);
    EXPECT_GE(again.cost().flops, flops) << "budget " << budget;
    flops = again.cost().flops;
  }
}

// Nodes with in-place updates must run once, so they are never recomputed.
TEST(Recompute, RepeatsNoUpdate) {
  register_operations();
  Program program;
  program.set_scope("layers.0");
  const Tensor x = program.input("x", {DType::kF32, {{4, Count::tokens}, 8}});
  const Tensor slots = program.input("slots", {DType::kI32, {{4, Count::tokens}}});
  const Tensor qkv = linear(x, program.weight("w", {DType::kF32, {8 * 3, 8}}));
  const Type page{DType::kF32, {2, 4, 8}};
  const Tensor keys = kv_append(qkv, program.state("k", page), program.state("v", page), slots,
                                {.heads = 1, .kv_heads = 1, .head_dim = 8})
                          .first;
  const Tensor inner = linear(qkv, program.weight("gate", {DType::kF32, {16, 24}}));
  program.output("y", swiglu(inner));
  program.output("keys", keys);
  const Program again = recompute(with_gradients(program), Recompute::kLayers, 0, DeviceKind::kCpu);
  EXPECT_EQ(count_nodes(again, "kv_append"), 1);
  EXPECT_EQ(count_nodes(again, "linear"), 4);  // both are recomputed
}

}  // namespace
}  // namespace hone::test
