// Qwen 2 and 2.5: biases on queries, keys and values.
#include "model/decoder.h"
#include "model/registry.h"

namespace hone {
namespace {

class Qwen2Family final : public Family {
 public:
  std::string_view model_type() const override { return "qwen2"; }
  std::unique_ptr<Model> create(const Json& config) const override { return make_decoder(config, {.qkv_bias = true}); }
};

const Qwen2Family kQwen2Family;

}  // namespace

void register_qwen2(FamilyRegistry& registry) { registry.add(kQwen2Family); }

}  // namespace hone
