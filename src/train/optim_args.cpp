#include "train/optim_args.h"

#include <string>

#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr const char* kKey = "optim_args";

// Converts the arguments to YAML, one key per line.
std::string as_yaml(std::string_view text) {
  std::string yaml;
  for (const std::string_view entry : split(text, ',')) {
    const std::string_view trimmed = trim(entry);
    if (trimmed.empty()) continue;
    const std::size_t equals = trimmed.find('=');
    if (equals == std::string_view::npos) {
      throw Error(kKey, text_of("expected name=value, saw '", trimmed, "'"), "for example momentum=0.9,nesterov=true");
    }
    yaml += text_of(trim(trimmed.substr(0, equals)), ": ", trim(trimmed.substr(equals + 1)), "\n");
  }
  return yaml;
}

void check_unread(const OptimArgs& args, std::string_view optimizer, UpdateRule rule) {
  const auto check = [&](bool is_set, bool is_read, std::string_view key) {
    if (!is_set || is_read) return;
    throw Error(kKey, text_of("optim ", optimizer, " does not read ", key), "remove it or choose another optim");
  };
  const bool sgd = rule == UpdateRule::kSgd;
  const bool muon = rule == UpdateRule::kMuon;
  check(args.momentum.has_value(), sgd || muon, "momentum");
  check(args.dampening.has_value(), sgd, "dampening");
  check(args.nesterov.has_value(), sgd || muon, "nesterov");
  check(args.ns_steps.has_value(), muon, "ns_steps");
  check(args.adjust_lr_fn != MuonScale::kMatchRmsAdamw, muon, "adjust_lr_fn");
  check(args.lr_ratio.has_value(), muon, "lr_ratio");
  check(args.master_weights.has_value(), sgd || muon, "master_weights");
}

}  // namespace

void apply_optim_args(std::string_view text, std::string_view optimizer, OptimizerOptions& options) {
  OptimArgs args;
  const std::string yaml = as_yaml(text);
  if (yaml.empty()) return;
  OptionInput input;
  read_option_keys(OptionTable(args), parse_yaml(yaml, kKey), kKey, {}, input);
  check_unread(args, optimizer, options.rule);
  options.masters = args.master_weights.value_or(options.masters);
  options.sgd.momentum = args.momentum.value_or(options.sgd.momentum);
  options.sgd.dampening = args.dampening.value_or(options.sgd.dampening);
  options.sgd.nesterov = args.nesterov.value_or(options.sgd.nesterov);
  options.muon.momentum = args.momentum.value_or(options.muon.momentum);
  options.muon.nesterov = args.nesterov.value_or(options.muon.nesterov);
  options.muon.steps = args.ns_steps.value_or(options.muon.steps);
  options.muon.scale = args.adjust_lr_fn;
  options.muon.rate_ratio = args.lr_ratio.value_or(options.muon.rate_ratio);
  if (options.rule != UpdateRule::kSgd) return;
  if (options.sgd.nesterov && (options.sgd.momentum == 0 || options.sgd.dampening != 0)) {
    throw Error(kKey, text_of("nesterov needs a momentum and no dampening, saw momentum ", options.sgd.momentum,
                              ", dampening ", options.sgd.dampening));
  }
}

}  // namespace hone
