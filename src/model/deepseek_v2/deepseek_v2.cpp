// DeepSeek-V2 (deepseek-ai/DeepSeek-V2-Lite): the router chooses by softmax, from all experts or from the groups with
// the best expert, and does not normalize the weights.
#include <string>

#include "core/error.h"
#include "model/config_reader.h"
#include "model/latent_decoder.h"
#include "model/registry.h"

namespace hone {
namespace {

class DeepseekV2Family final : public Family {
 public:
  std::string_view model_type() const override { return "deepseek_v2"; }
  std::unique_ptr<Model> create(const Json& json) const override {
    const ConfigReader config(json);
    ExpertMixture mixture = parse_latent_mixture(json);
    const std::string method = config.text("topk_method", "greedy");
    if (method == "group_limited_greedy") {
      mixture.routing.groups = config.positive("n_group");
      mixture.routing.top_groups = config.positive("topk_group");
    } else if (method != "greedy") {
      throw Error("config.json", text_of("'topk_method' is \"", method, "\", which deepseek_v2 does not have"),
                  "greedy or group_limited_greedy");
    }
    if (const std::string scores = config.text("scoring_func", "softmax"); scores != "softmax") {
      throw Error("config.json", text_of("'scoring_func' is \"", scores, "\", expected \"softmax\""));
    }
    // transformers ignores this key, DeepSeek's code does not: what `true` means is not settled.
    config.require("norm_topk_prob", false);
    return make_latent_decoder(json, {.mixture = std::move(mixture)});
  }
};

const DeepseekV2Family kDeepseekV2Family;

}  // namespace

void register_deepseek_v2(FamilyRegistry& registry) { registry.add(kDeepseekV2Family); }

}  // namespace hone
