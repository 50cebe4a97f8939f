// Additional outputs of a model's forward pass: losses besides the token loss, and statistics for the log.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "program/program.h"

namespace hone {

// A loss that a model adds to the token loss, for example load balancing of a mixture of experts or multi-token
// prediction. It adds coefficient x sum over tokens of weight[t] x term[t] to the loss of the step. The weights are
// those of the token loss, so the result does not depend on how a step is split into micro-batches.
struct AddedLoss {
  std::string name;  // metric name, for example "router_aux_loss"
  double coefficient = 1.0;
  Tensor term;  // f32 [tokens] (f64 in programs of f64)
};

// The reduction of a statistic over the micro-batches of a step.
enum class StatisticKind : std::uint8_t {
  kSum,   // f32 [n], elementwise sum, for example the tokens routed to each expert
  kMax,   // f32 [n], elementwise maximum
  kMean,  // f32 [tokens], mean over the tokens in use
  kLoad,  // f32 [experts], elementwise sum of the choices that fell on each expert of a layer
};

// A statistic for the log. A value with several entries is logged as NAME/min, NAME/mean and NAME/max over the entries.
// A load NAME/LAYER is logged as its coefficient of variation, the standard deviation over the experts divided by the
// mean, under NAME_cv/LAYER; NAME_cv is the mean over the layers, and NAME_max the largest load of an expert in any
// layer, divided by the mean load.
struct ModelStatistic {
  std::string name;  // metric name, for example "expert_load"
  StatisticKind kind = StatisticKind::kMean;
  Tensor value;
};

}  // namespace hone
