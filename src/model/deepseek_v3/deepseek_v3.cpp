// DeepSeek-V3 and R1 (deepseek-ai/DeepSeek-V3): the router chooses by sigmoid plus a bias for each expert, which
// balances their load without a loss, from the groups whose two best experts have the highest sum.
#include <string>

#include "core/error.h"
#include "model/config_reader.h"
#include "model/latent_decoder.h"
#include "model/registry.h"

namespace hone {
namespace {

class DeepseekV3Family final : public Family {
 public:
  std::string_view model_type() const override { return "deepseek_v3"; }
  std::unique_ptr<Model> create(const Json& json) const override {
    const ConfigReader config(json);
    if (const std::string method = config.text("topk_method", "noaux_tc"); method != "noaux_tc") {
      throw Error("config.json", text_of("'topk_method' is \"", method, "\", which deepseek_v3 does not have"),
                  "noaux_tc");
    }
    if (const std::string scores = config.text("scoring_func", "sigmoid"); scores != "sigmoid") {
      throw Error("config.json", text_of("'scoring_func' is \"", scores, "\", expected \"sigmoid\""));
    }
    ExpertMixture mixture = parse_latent_mixture(json);
    mixture.correction_bias = true;
    mixture.routing.sigmoid = true;
    mixture.routing.groups = config.positive("n_group");
    mixture.routing.top_groups = config.positive("topk_group");
    mixture.routing.group_depth = 2;
    mixture.routing.normalize = config.boolean("norm_topk_prob", true);
    return make_latent_decoder(json, {.mixture = std::move(mixture),
                                      .interleaved = config.boolean("rope_interleave", true),
                                      .predicts_tokens = true});
  }
};

const DeepseekV3Family kDeepseekV3Family;

}  // namespace

void register_deepseek_v3(FamilyRegistry& registry) { registry.add(kDeepseekV3Family); }

}  // namespace hone
