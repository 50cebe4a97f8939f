// Fuzz target: the input as adapter_config.json, and as a regular expression in the first line that is matched against
// the module names in the other lines.
#include <string>

#include "core/json_value.h"
#include "core/strings.h"
#include "fuzz/target.h"
#include "model/adapter_config.h"
#include "model/name_pattern.h"

HONE_FUZZ_TARGET(adapter)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  const std::string_view input = fuzz::as_text(data, size);
  if (input.starts_with('{')) {
    fuzz::accepts([&] {
      const AdapterConfig config(parse_json(input, "adapter_config.json"), "adapter_config.json");
      for (const char* module : {"model.layers.0.self_attn.q_proj", "model.layers.31.mlp.up_proj", "lm_head", ""}) {
        if (!config.targets(module)) continue;
        HONE_ASSERT(config.rank(module) > 0, module, " has an adapter of rank ", config.rank(module));
        (void)config.scale(module);
      }
    });
    return 0;
  }
  const auto [pattern, names] = fuzz::parted(input, '\n');
  fuzz::accepts([&source = pattern, &all = names] {
    const NamePattern one(source, "key");
    const NamePattern either("(?:" + std::string(source) + ")", "key");
    for (const std::string& name : split(all, '\n')) {
      HONE_ASSERT(one.fits(name) == either.fits(name), "'", source, "' and its group differ on '", name, "'");
    }
  });
  return 0;
}
