// Parses the option optim_args, for example "momentum=0.9, nesterov=True", with which transformers passes arguments to
// its optimizers.
#pragma once

#include <optional>
#include <string_view>

#include "core/options.h"
#include "train/update_rule.h"

namespace hone {

template <>
inline constexpr EnumTable kEnumTable<MuonScale>{.names = "match_rms_adamw|original"};

struct OptimArgs {
  std::optional<double> momentum;
  std::optional<double> dampening;
  std::optional<bool> nesterov;
  std::optional<std::int64_t> ns_steps;
  MuonScale adjust_lr_fn = MuonScale::kMatchRmsAdamw;
  std::optional<double> lr_ratio;
  std::optional<bool> master_weights;

  template <class Visitor>
  void fields(Visitor& v) {
    v("momentum", momentum, "sgd (0), muon (0.95): share of the momentum that stays", within(0, 1));
    v("dampening", dampening, "sgd: share of the gradient that does not enter the momentum", within(0, 1));
    v("nesterov", nesterov, "sgd (false), muon (true): look one step of the momentum ahead");
    v("ns_steps", ns_steps, "muon: Newton-Schulz iterations (5)", within(1, 100));
    v("adjust_lr_fn", adjust_lr_fn, "muon: how a matrix's size scales its rate");
    v("lr_ratio", lr_ratio, "muon: rate of the matrices as a multiple of learning_rate (1)", above(0));
    v("master_weights", master_weights,
      "sgd, muon: f32 weights in addition to bfloat16 ones (true); otherwise stochastic rounding");
  }
};

// Applies the arguments in `text` to options. `optimizer` is named in errors. Throws Error if the optimizer does not
// use an argument or if arguments contradict each other.
void apply_optim_args(std::string_view text, std::string_view optimizer, OptimizerOptions& options);

}  // namespace hone
