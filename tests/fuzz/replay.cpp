// Runs a fuzz target on all files of the given folders: NAME FOLDER... Builds without libFuzzer use it as a test of the
// stored inputs.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace hone::fuzz {
namespace {

std::map<std::string_view, Target>& targets() {
  static std::map<std::string_view, Target> all;
  return all;
}

}  // namespace

bool add_target(std::string_view name, Target target) {
  HONE_ASSERT(targets().emplace(name, target).second, "two targets are named ", name);
  return true;
}

}  // namespace hone::fuzz

int main(int argc, char** argv) {
  const auto& targets = hone::fuzz::targets();
  const auto target = argc > 1 ? targets.find(argv[1]) : targets.end();
  if (target == targets.end()) {
    std::printf("usage: %s NAME FOLDER..., with one of these names:\n", argv[0]);
    for (const auto& [name, unused] : targets) std::printf("%s\n", std::string(name).c_str());
    return 1;
  }
  std::vector<std::filesystem::path> inputs;
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) inputs.push_back(entry.path());
  }
  std::ranges::sort(inputs);
  for (const std::filesystem::path& path : inputs) {
    std::printf("%s\n", path.c_str());  // the last line names the input that crashes
    std::fflush(stdout);
    std::ifstream file(path, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    try {
      target->second(reinterpret_cast<const std::uint8_t*>(content.data()), content.size());
    } catch (const std::exception& error) {
      std::printf("threw: %s\n", error.what());
      return 1;
    }
  }
  std::printf("%zu inputs\n", inputs.size());
  return inputs.empty() ? 1 : 0;
}
