#include "engine/engine_part.h"

#include <utility>

namespace hone {

ModelSetup engine_part(EngineGroup* group, const EngineOptions& options) {
  return {.wrap = [group, options](std::unique_ptr<Model> model) -> std::unique_ptr<Model> {
            prepare_model(*model, options);
            return group != nullptr ? group->part_of(std::move(model)) : std::move(model);
          },
          .check = [options](const Model& model) { check_cache_and_drafts(options, model); }};
}

}  // namespace hone
