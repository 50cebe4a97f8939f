#include "train/hub_options.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.h"
#include "core/strings.h"
#include "core/yaml.h"
#include "hub/cache.h"

namespace hone {
namespace {

constexpr const char* kRevisionCallback = "push_to_hub_revision";

}  // namespace

bool HubOptions::pushes_revisions() const { return std::ranges::count(callbacks, kRevisionCallback) > 0; }

std::string hub_repo_name(const HubOptions& options, const std::string& output_dir) {
  if (!options.hub_model_id.empty()) return options.hub_model_id;
  const std::filesystem::path path = std::filesystem::absolute(output_dir).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

void check_hub_options(const HubOptions& options, const std::string& output_dir, const OptionInput& input) {
  for (const std::string& name : options.callbacks) {
    if (name == kRevisionCallback || name == "none" || yaml_boolean(name) == false) continue;
    const std::array<std::string, 1> known{kRevisionCallback};
    throw Error(input.place_of("callbacks"), text_of("no callback is called ", shown(name)),
                nearest_name(name, known).empty() ? text_of("known: ", kRevisionCallback)
                                                  : text_of("did you mean ", kRevisionCallback, "?"));
  }
  if (!options.uses_hub()) return;
  const std::string name = hub_repo_name(options, output_dir);
  if (!is_repo_name(name)) {
    throw Error(input.place_of("hub_model_id"),
                text_of(shown(name), options.hub_model_id.empty() ? ", output_dir's name," : "",
                        " cannot be the name of a repository on the hub"),
                "OWNER/NAME, of letters, digits, '-', '_' and '.'");
  }
  if (!options.hub_revision.empty()) check_revision({.name = name, .revision = options.hub_revision});
  check_revision({.name = name, .revision = options.hub_model_revision});
}

}  // namespace hone
