// Where hone keeps what it may make anew.
#pragma once

#include <filesystem>
#include <string>

namespace hone {

// "~" and "~/..." below HOME; other paths as they are.
[[nodiscard]] std::filesystem::path expand_home(const std::string& path);

// HONE_CACHE, or hone/ in XDG_CACHE_HOME or in ~/.cache; empty where there is no home. It need not exist.
[[nodiscard]] std::filesystem::path cache_folder();

}  // namespace hone
