// Options of training by which the experts of a mixture get equal load, and of multi-token prediction.
#pragma once

#include <optional>

#include "core/options.h"

namespace hone {

class Model;

// output_router_logits and router_aux_loss_coef are keys of transformers' configurations, aux_loss_alpha one of
// DeepSeek's, whose value in config.json has no effect, as in transformers.
struct ExpertOptions {
  std::optional<bool> output_router_logits;
  std::optional<double> router_aux_loss_coef;
  double aux_loss_alpha = 0;
  std::optional<double> bias_update_speed;
  double mtp_loss_weight = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Mixture of experts, multi-token prediction");
    v("output_router_logits", output_router_logits,
      "Add the router's auxiliary loss (mixtral, qwen3_moe); unset: as config.json says");
    v("router_aux_loss_coef", router_aux_loss_coef, "Coefficient of that loss; unset: that of config.json",
      at_least(0));
    v("aux_loss_alpha", aux_loss_alpha,
      "Coefficient of the sequence-wise loss that balances experts (deepseek_v2, deepseek_v3)", at_least(0));
    v("bias_update_speed", bias_update_speed,
      "Change of the bias of an expert's score by each step, up if the expert had less than the mean load, otherwise "
      "down (deepseek_v3); unset: 0.001 in pretrain, otherwise 0",
      at_least(0));
    v("mtp_loss_weight", mtp_loss_weight,
      "Coefficient of the loss of the layer for multi-token prediction, which predicts one token further (deepseek_v3; "
      "0.3 and later 0.1 in DeepSeek-V3); 0: the layer is left out",
      at_least(0));
  }
};

// Value of bias_update_speed that `hone pretrain` takes if it is not set, DeepSeek-V3's.
inline constexpr double kPretrainBiasSpeed = 0.001;

// Prepares a model for training with these options, before it gets an adapter. use_peft: it will get one, so that its
// biases cannot move. unset_speed: bias_update_speed if it is not set and the model has such biases. Throws Error if
// the model has no use for an option that is set.
void prepare_experts(Model& model, const ExpertOptions& options, bool use_peft, double unset_speed = 0);

}  // namespace hone
