// Qwen 3, dense: an RMS norm on every head of queries and keys.
#include "model/decoder.h"
#include "model/registry.h"

namespace hone {
namespace {

class Qwen3Family final : public Family {
 public:
  std::string_view model_type() const override { return "qwen3"; }
  std::unique_ptr<Model> create(const Json& config) const override { return make_decoder(config, {.qk_norm = true}); }
};

const Qwen3Family kQwen3Family;

}  // namespace

void register_qwen3(FamilyRegistry& registry) { registry.add(kQwen3Family); }

}  // namespace hone
