// Mixtral (mistralai/Mixtral-8x7B-v0.1): a mixture of experts in every layer, whose weights have the sum 1.
#include "core/error.h"
#include "model/config_reader.h"
#include "model/decoder.h"
#include "model/registry.h"

namespace hone {
namespace {

class MixtralFamily final : public Family {
 public:
  std::string_view model_type() const override { return "mixtral"; }
  std::unique_ptr<Model> create(const Json& config) const override {
    if (ConfigReader(config).has("sliding_window")) {
      throw Error("config.json", text_of("'sliding_window' is ", ConfigReader(config).positive("sliding_window"),
                                         ", expected null: attention in a window is not supported"));
    }
    ExpertMixture mixture = parse_mixture(config, "intermediate_size",
                                          {.router = "block_sparse_moe.gate",
                                           .experts = "block_sparse_moe.experts",
                                           .gate = "w1",
                                           .up = "w3",
                                           .down = "w2"});
    mixture.routing.normalize = true;
    return make_decoder(config, {.mixture = std::move(mixture), .default_epsilon = 1e-5, .default_theta = 1e6});
  }
};

const MixtralFamily kMixtralFamily;

}  // namespace

void register_mixtral(FamilyRegistry& registry) { registry.add(kMixtralFamily); }

}  // namespace hone
