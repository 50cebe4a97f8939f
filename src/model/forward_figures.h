// What a model's forward pass may give beside its hidden states: losses of its own and figures of what it did.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "program/program.h"

namespace hone {

// A loss that a model adds to that of its tokens: the balance of a mixture's experts, the prediction of tokens further
// on. The step's loss grows by coefficient x the sum over tokens of weight[t] x term[t], where the weights are those of
// the tokens' own loss: no split of a step into micro-batches changes it.
struct AddedLoss {
  std::string name;  // of its metric: "router_aux_loss"
  double coefficient = 1.0;
  Tensor term;  // f32 [tokens] (f64 in programs of f64)
};

// How a figure's values of several micro-batches become one.
enum class StatisticKind : std::uint8_t {
  sum,   // f32 [n], added up: tokens that each expert was given
  max,   // f32 [n], the largest
  mean,  // f32 [tokens]: the mean over the tokens in use
};

// A figure for the log. One of several entries is logged as NAME/min, NAME/mean and NAME/max over them.
struct ModelStatistic {
  std::string name;  // of its metric: "expert_load"
  StatisticKind kind = StatisticKind::mean;
  Tensor value;
};

}  // namespace hone
