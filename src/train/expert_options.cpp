#include "train/expert_options.h"

#include "core/error.h"
#include "model/model.h"

namespace hone {

void prepare_experts(Model& model, const ExpertOptions& options, bool use_peft, double unset_speed) {
  if (const double speed = options.bias_update_speed.value_or(0); use_peft && speed > 0) {
    throw Error("bias_update_speed", text_of("is ", speed, ", but use_peft leaves all biases of routers as they are"),
                "remove one of the two");
  }
  const double unset = use_peft || !has_router_biases(model) ? 0.0 : unset_speed;
  model.prepare_training({.output_router_logits = options.output_router_logits,
                          .router_aux_loss_coef = options.router_aux_loss_coef,
                          .aux_loss_alpha = options.aux_loss_alpha,
                          .bias_update_speed = options.bias_update_speed.value_or(unset),
                          .mtp_loss_weight = options.mtp_loss_weight});
}

}  // namespace hone
