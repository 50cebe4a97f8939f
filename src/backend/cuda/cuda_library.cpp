#include "backend/cuda/cuda_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"

namespace hone {

void* open_cuda_library(std::string_view name, std::string_view place, std::string_view hint,
                        std::initializer_list<std::string_view> folders) {
  std::vector<std::string> homes;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* home = std::getenv(variable)) homes.emplace_back(home);
  }
  homes.emplace_back("/usr/local/cuda");
  std::vector<std::string> paths{std::string(name)};
  for (const std::string& home : homes) {
    for (const std::string_view folder : folders) paths.push_back(text_of(home, "/", folder, "/", name));
  }
  for (const std::string& path : paths) {
    if (void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw Error(std::string(place), text_of(name, " was not found"), std::string(hint));
}

}  // namespace hone
