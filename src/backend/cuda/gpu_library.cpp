#include "backend/cuda/gpu_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"

namespace hone {
namespace {

#ifdef HONE_HIP
constexpr const char* kVariables[] = {"ROCM_PATH"};
constexpr const char* kHome = "/opt/rocm";
constexpr std::string_view kFolder = "lib";
#else
constexpr const char* kVariables[] = {"CUDA_HOME", "CUDA_PATH"};
constexpr const char* kHome = "/usr/local/cuda";
constexpr std::string_view kFolder = "lib64";
#endif

}  // namespace

void* open_gpu_library(std::string_view name, std::string_view place, std::string_view hint,
                       std::initializer_list<std::string_view> folders) {
  std::vector<std::string> homes;
  for (const char* variable : kVariables) {
    if (const char* home = std::getenv(variable)) homes.emplace_back(home);
  }
  homes.emplace_back(kHome);
  std::vector<std::string> paths{std::string(name)};
  for (const std::string& home : homes) {
    if (folders.size() == 0) paths.push_back(text_of(home, "/", kFolder, "/", name));
    for (const std::string_view folder : folders) paths.push_back(text_of(home, "/", folder, "/", name));
  }
  for (const std::string& path : paths) {
    if (void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw Error(std::string(place), text_of(name, " was not found"), std::string(hint));
}

}  // namespace hone
