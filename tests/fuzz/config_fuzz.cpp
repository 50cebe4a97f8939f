// Fuzz target: the input as config.json, from which a model is created.

#include "core/json_value.h"
#include "fuzz/target.h"
#include "model/registry.h"

HONE_FUZZ_TARGET(config)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  fuzz::accepts([&] {
    const auto model = family_registry().create(parse_json(fuzz::as_text(data, size), "config.json"));
    HONE_ASSERT(parameter_count(*model) > 0, "a model without parameters");
    for (const WeightSpec& spec : model->weights()) {
      std::int64_t rows = 0;
      for (const WeightPart& part : spec.parts) {
        HONE_ASSERT(part.row == rows && part.rows > 0, spec.name, ": ", part.name, " begins at ", part.row);
        rows += part.rows;
      }
      HONE_ASSERT(rows == spec.shape[0], spec.name, " has ", spec.shape[0], " rows, its parts ", rows);
    }
  });
  return 0;
}
