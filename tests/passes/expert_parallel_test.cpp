// Tests of the pass that divides experts over ranks: where it sends rows, and what it refuses.
#include "passes/expert_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/expert_combine/expert_combine.h"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/expert_order/expert_order.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "ops/scale/scale.h"
#include "ops/swiglu/swiglu.h"
#include "program/text.h"

namespace hone {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kBatch = 6, kChosen = 2, kOfLayer = 8, kHidden = 4, kInner = 3;

// The mixture of one layer; `scales`: with an operation between the products that is no activation function.
Program mixture_program(bool scales = false) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {{kBatch, Count::tokens}, kHidden}});
  const Tensor expert = program.input("expert", {DType::kI32, {{kBatch, Count::tokens}, kChosen}});
  const Tensor weight = program.input("weight", {DType::kF32, {{kBatch, Count::tokens}, kChosen}});
  const Tensor gate_up = program.weight("gate_up", {DType::kF32, {kOfLayer * 2 * kInner, kHidden}});
  const Tensor down = program.weight("down", {DType::kF32, {kOfLayer * kHidden, kInner}});
  const ExpertOrder order = expert_order(expert, {.experts = kOfLayer});
  const Tensor rows = expert_dispatch(x, order.position);
  Tensor inner = swiglu(grouped_linear(rows, gate_up, order.start, {.experts = kOfLayer}));
  if (scales) inner = scale(inner, 2.0);
  const Tensor y = grouped_linear(inner, down, order.start, {.experts = kOfLayer});
  program.output("y", expert_combine(y, weight, order.position));
  return program;
}

std::vector<std::string> names_of(const Program& program) {
  std::vector<std::string> names;
  for (const Node& node : program.nodes()) names.emplace_back(node.op->name());
  return names;
}

TEST(DivideExperts, RowsAreSentOnceAndStayThroughTheActivation) {
  const Program divided = divide_experts(mixture_program(), {.ranks = 2, .weights = {"gate_up", "down"}});
  EXPECT_THAT(names_of(divided),
              ElementsAre("expert_order", "expert_dispatch", "expert_ranks_start", "expert_ranks_send",
                          "grouped_linear", "swiglu", "grouped_linear", "expert_ranks_return", "expert_combine"));
  EXPECT_EQ(divided.value(divided.find(Role::kWeight, "gate_up")).type.rows(), kOfLayer * kInner);
  // Each token of both ranks may choose two of the four experts of a rank.
  const Value& sent = divided.value(divided.nodes()[3].outputs[0]);
  EXPECT_EQ(sent.type.rows(), 2 * kBatch * kChosen);
  EXPECT_EQ(divided.count_source(sent.type), divided.nodes()[2].outputs[3]);
  // The cost counts the rows that experts have on average: those of one rank's tokens.
  EXPECT_EQ(divided.cost(divided.nodes()[4]).flops, 2.0 * kBatch * kChosen * kHidden * 2 * kInner);
  EXPECT_EQ(to_text(program_from_text(to_text(divided))), to_text(divided));
}

TEST(DivideExperts, AGroupOfManyRanksHasRoomForTheExpertsOfOne) {
  // A token chooses at most one of the experts of a rank, because there is one.
  const Program divided = divide_experts(mixture_program(), {.ranks = 8, .weights = {"gate_up", "down"}});
  EXPECT_EQ(divided.value(divided.nodes()[3].outputs[0]).type.rows(), 8 * kBatch);
}

TEST(DivideExperts, RowsOfSeveralProductsAreSentOnce) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {{kBatch, Count::tokens}, kHidden}});
  const Tensor expert = program.input("expert", {DType::kI32, {{kBatch, Count::tokens}, kChosen}});
  const Tensor weight = program.input("weight", {DType::kF32, {{kBatch, Count::tokens}, kChosen}});
  const ExpertOrder order = expert_order(expert, {.experts = kOfLayer});
  const Tensor rows = expert_dispatch(x, order.position);
  for (const char* name : {"gate", "up"}) {
    const Tensor matrices = program.weight(name, {DType::kF32, {kOfLayer * kInner, kHidden}});
    const Tensor y = grouped_linear(rows, matrices, order.start, {.experts = kOfLayer});
    program.output(name, expert_combine(y, weight, order.position));
  }
  program.output("rows", expert_combine(rows, weight, order.position));
  EXPECT_THAT(names_of(divide_experts(program, {.ranks = 2, .weights = {"gate", "up"}})),
              ElementsAre("expert_order", "expert_dispatch", "expert_ranks_start", "expert_ranks_send",
                          "grouped_linear", "expert_ranks_return", "expert_combine", "grouped_linear",
                          "expert_ranks_return", "expert_combine", "expert_combine"));
}

TEST(DivideExperts, RowsComeBackForOtherOperations) {
  const Program divided = divide_experts(mixture_program(true), {.ranks = 2, .weights = {"gate_up", "down"}});
  EXPECT_THAT(names_of(divided),
              ElementsAre("expert_order", "expert_dispatch", "expert_ranks_start", "expert_ranks_send",
                          "grouped_linear", "swiglu", "expert_ranks_return", "scale", "expert_ranks_send",
                          "grouped_linear", "expert_ranks_return", "expert_combine"));
}

TEST(DivideExperts, WhatCannotBeDividedIsNamed) {
  const auto refused = [](const Program& program, const ExpertDivision& division) -> std::string {
    try {
      (void)divide_experts(program, division);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(refused(mixture_program(), {.ranks = 3, .weights = {"gate_up", "down"}}),
              HasSubstr("expert_parallel_size: is 3, which does not divide the 8 experts of a layer"));
  Program other;
  const Tensor x = other.input("x", {DType::kF32, {{kBatch, Count::tokens}, kHidden}});
  other.output("y", linear(x, other.weight("w", {DType::kF32, {8, kHidden}})));
  EXPECT_THAT(refused(other, {.ranks = 2, .weights = {"w"}}), HasSubstr("linear"));
}

}  // namespace
}  // namespace hone
