// Qwen 3 with a mixture of experts in place of the MLP (Qwen/Qwen3-30B-A3B).
#include "model/decoder.h"
#include "model/registry.h"

namespace hone {
namespace {

class Qwen3MoeFamily final : public Family {
 public:
  std::string_view model_type() const override { return "qwen3_moe"; }
  std::unique_ptr<Model> create(const Json& config) const override {
    return make_decoder(config, {.qk_norm = true,
                                 .mixture = parse_mixture(config, "moe_intermediate_size",
                                                          {.router = "mlp.gate",
                                                           .experts = "mlp.experts",
                                                           .gate = "gate_proj",
                                                           .up = "up_proj",
                                                           .down = "down_proj"})});
  }
};

const Qwen3MoeFamily kQwen3MoeFamily;

}  // namespace

void register_qwen3_moe(FamilyRegistry& registry) { registry.add(kQwen3MoeFamily); }

}  // namespace hone
