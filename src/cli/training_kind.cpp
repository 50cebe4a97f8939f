#include "cli/training_kind.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "core/strings.h"
#include "rl/options.h"
#include "train/options.h"

namespace hone {
namespace {

// Counts the keys of the recipe that a command with these options knows.
template <class Options>
std::ptrdiff_t known_keys(const YamlValue& recipe) {
  Options options;
  const OptionTable table(options);
  return std::ranges::count_if(recipe.keys, [&](const std::string& key) {
    std::string name = key;
    std::ranges::replace(name, '-', '_');
    return table.find(name) != nullptr || table.is_map(name);
  });
}

std::ptrdiff_t known_keys(const YamlValue& recipe, std::string_view kind) {
  if (kind == "pretrain") return known_keys<PretrainOptions>(recipe);
  return kind == "sft" ? known_keys<SftOptions>(recipe) : known_keys<GrpoOptions>(recipe);
}

}  // namespace

std::string_view training_kind_of(const std::string& recipe, std::span<const std::string_view> kinds) {
  const YamlValue document = read_yaml(recipe);
  if (document.kind == YamlValue::Kind::kMap && std::ranges::count(document.keys, "stages") > 0) {
    throw Error(recipe, "is the recipe of a pipeline", "hone pipeline --dry_run prints the recipe of each stage");
  }
  std::vector<std::string> best;
  std::ptrdiff_t most = 0;
  const std::string stem = std::filesystem::path(recipe).stem().string();
  std::string_view named;
  for (const std::string_view kind : kinds) {
    const std::ptrdiff_t known = known_keys(document, kind);
    if (known > most) best.clear();
    most = std::max(most, known);
    if (known < most) continue;
    best.emplace_back(kind);
    if (stem.find(kind) != std::string::npos) named = kind;
  }
  const auto at = [&](std::string_view name) { return *std::ranges::find(kinds, name); };
  if (best.size() == 1) return at(best[0]);
  if (!named.empty() && std::ranges::count(best, named) == 1) return at(named);
  throw Error(recipe, text_of("its keys fit ", join(best, " and ")),
              text_of("name the command: hone plan ", best[0], " ", recipe));
}

}  // namespace hone
