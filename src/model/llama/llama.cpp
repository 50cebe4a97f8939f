// Llama 3 and 3.1 (meta-llama/Llama-3.1-8B): grouped queries, llama3 rope scaling.
#include "model/decoder.h"
#include "model/registry.h"

namespace hone {
namespace {

class LlamaFamily final : public Family {
 public:
  std::string_view model_type() const override { return "llama"; }
  std::unique_ptr<Model> create(const Json& config) const override { return make_decoder(config, {}); }
};

const LlamaFamily kLlamaFamily;

}  // namespace

void register_llama(FamilyRegistry& registry) { registry.add(kLlamaFamily); }

}  // namespace hone
