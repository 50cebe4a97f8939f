#include "system/cache_folder.h"

#include "system/process.h"

namespace hone {
namespace fs = std::filesystem;

fs::path expand_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return environment_variable("HOME") + path.substr(1);
}

fs::path cache_folder() {
  if (const std::string own = environment_variable("HONE_CACHE"); !own.empty()) return expand_home(own);
  if (const std::string cache = environment_variable("XDG_CACHE_HOME"); !cache.empty()) {
    return expand_home(cache) / "hone";
  }
  if (environment_variable("HOME").empty()) return {};
  return expand_home("~/.cache/hone");
}

}  // namespace hone
