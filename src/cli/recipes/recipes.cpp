// hone recipes: lists, prints or writes the recipes that are embedded in the program.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/recipes/embedded.h"
#include "cli/registry.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/strings.h"

namespace hone {
namespace {

struct RecipesOptions {
  std::string output_dir;

  template <class Visitor>
  void fields(Visitor& v) {
    v("output_dir", output_dir, "Folder to write the recipes to; never overwrites a file that differs");
  }
};

// Returns the comment in the first line of a recipe, at most 80 characters, or an empty string.
std::string title_of(const EmbeddedRecipe& recipe) {
  constexpr std::size_t kMost = 80;
  if (!recipe.text.starts_with("# ")) return {};
  const std::string_view line = recipe.text.substr(2, recipe.text.find('\n') - 2);
  return line.size() <= kMost ? std::string(line) : text_of(line.substr(0, kMost), "...");
}

void print_list() {
  for (const EmbeddedRecipe& recipe : embedded_recipes()) {
    std::printf("%-32s %s\n", std::string(recipe.name).c_str(), title_of(recipe).c_str());
  }
}

const EmbeddedRecipe& find_recipe(const std::string& name) {
  std::vector<std::string> names;
  for (const EmbeddedRecipe& recipe : embedded_recipes()) {
    if (recipe.name == name || recipe.name == name + ".yaml") return recipe;
    names.emplace_back(recipe.name);
  }
  const std::string nearest = nearest_name(name, names);
  throw Error("hone recipes", text_of("unknown recipe ", shown(name)),
              nearest.empty() ? "hone recipes lists them" : text_of("did you mean ", nearest, "?"));
}

int run(const RecipesOptions& options, const OptionInput& input) {
  if (input.positionals.size() > 1) {
    throw Error("hone recipes", text_of("expected one name, saw ", shown(input.positionals[1]), " as well"));
  }
  const std::string name = input.positionals.empty() ? std::string() : input.positionals[0];
  if (options.output_dir.empty()) {
    if (name.empty()) {
      print_list();
    } else {
      std::fputs(std::string(find_recipe(name).text).c_str(), stdout);
    }
    return 0;
  }
  ensure_writable_folder(options.output_dir, "output_dir");
  const std::string prefix = name.empty() || name.ends_with('/') ? name : name + "/";
  std::size_t count = write_recipes(prefix, options.output_dir);
  if (count == 0) {  // `name` is not a folder: write the one recipe under its file name
    const std::string_view found = find_recipe(name).name;
    count = write_recipes(found, std::filesystem::path(options.output_dir) / std::filesystem::path(found).filename());
  }
  log_info(text_of("wrote ", count, count == 1 ? " file" : " files", " to ", options.output_dir));
  return 0;
}

}  // namespace

std::size_t write_recipes(std::string_view prefix, const std::filesystem::path& folder) {
  std::size_t count = 0;
  for (const EmbeddedRecipe& recipe : embedded_recipes()) {
    if (!recipe.name.starts_with(prefix)) continue;
    const std::string_view below = recipe.name.substr(prefix.size());
    const std::filesystem::path path = below.empty() ? folder : folder / below;
    ++count;
    if (is_file(path)) {
      if (read_file(path) == recipe.text) continue;
      throw Error(path.string(), "exists and differs from the built-in recipe", "delete it, or choose another folder");
    }
    hone::create_directories(path.parent_path());
    write_file(path, recipe.text);
  }
  return count;
}

void register_recipes(CommandRegistry& registry) {
  registry.add(make_command<RecipesOptions>(
      {.name = "recipes",
       .summary = "List, print or write the built-in recipes",
       .positionals = "[NAME]",
       .details = "hone recipes                                       lists the recipes\n"
                  "hone recipes quickstart/sft                        prints one\n"
                  "hone recipes quickstart --output_dir my_recipes    writes a folder of them",
       .recipe = RecipeArgument::kRefused},
      run));
}

}  // namespace hone
