// Location of the cache folder, whose contents can be regenerated or downloaded again.
#pragma once

#include <filesystem>
#include <string>

namespace hone {

// Expands "~" and "~/..." to the folder in HOME; returns other paths unchanged.
[[nodiscard]] std::filesystem::path expand_home(const std::string& path);

// Returns HONE_CACHE, otherwise hone/ in XDG_CACHE_HOME, otherwise ~/.cache/hone; an empty path if HOME is not set
// either. The folder may not exist yet.
[[nodiscard]] std::filesystem::path cache_folder();

}  // namespace hone
