// Checks that exactly the folders of ops, model, reward, eval and cli that have a NAME.cpp are registered.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "cli/registry.h"
#include "eval/registry.h"
#include "model/registry.h"
#include "ops/registry.h"
#include "reward/registry.h"
#include "support/paths.h"
#include "tracker/registry.h"

namespace hone::test {
namespace {

using Names = std::set<std::string>;

// Returns the folders of src/ROOM that contain `file`, in which NAME is replaced by the name of the folder.
Names folders(std::string_view room, const std::string& file = "NAME.cpp") {
  Names names;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "src" / room)) {
    const std::string name = entry.path().filename().string();
    if (std::filesystem::exists(entry.path() / (file == "NAME.cpp" ? name + ".cpp" : file))) names.insert(name);
  }
  return names;
}

Names set_of(const std::vector<std::string>& names) { return {names.begin(), names.end()}; }

TEST(Registry, Families) {
  EXPECT_EQ(set_of(family_registry().names()), folders("model"));
  EXPECT_GE(folders("model").size(), 3u);
}

TEST(Registry, Rewards) {
  RewardRegistry registry;
  register_all_reward(registry);
  EXPECT_EQ(registry.names().size(), folders("reward").size());
  EXPECT_FALSE(registry.names().empty());
}

TEST(Registry, Trackers) {
  TrackerRegistry registry;
  register_all_tracker(registry);
  EXPECT_EQ(set_of(registry.names()), folders("tracker"));
  EXPECT_GE(folders("tracker").size(), 2u);
}

TEST(Registry, Tasks) {
  TaskRegistry registry;
  register_all_eval(registry);
  // A folder may have several versions of a task, whose names begin with the name of the folder.
  Names found;
  const Names known = folders("eval");
  for (const std::string& task : registry.names()) {
    std::string folder;
    for (const std::string& name : known) {
      if (task.starts_with(name) && name.size() > folder.size()) folder = name;
    }
    EXPECT_FALSE(folder.empty()) << "task " << task << " is in no folder of its name";
    found.insert(folder);
  }
  EXPECT_EQ(found, known);
  EXPECT_FALSE(found.empty());
}

TEST(Registry, Commands) {
  CommandRegistry registry;
  register_all_cli(registry);
  EXPECT_EQ(registry.commands().size(), folders("cli").size());
  EXPECT_FALSE(registry.commands().empty());
}

// A folder may have several operations, for example those of the backward pass. Their names begin with the name of the
// folder, so every operation has a folder and every folder an operation.
TEST(Registry, Operations) {
  OpRegistry registry;
  register_all_ops(registry);
  Names found;
  const Names known = folders("ops");
  for (const std::string& op : registry.names()) {
    std::string folder;
    for (const std::string& name : known) {
      if (op.starts_with(name) && name.size() > folder.size()) folder = name;
    }
    EXPECT_FALSE(folder.empty()) << "operation " << op << " is in no folder of its name";
    found.insert(folder);
  }
  EXPECT_EQ(found, known);
  EXPECT_EQ(folders("ops", "cpu.cpp"), known) << "every operation runs on the CPU";
}

TEST(Registry, EveryOperationButViewsHasACpuKernel) {
  register_operations();
  for (const std::string& name : op_registry().names()) {
    if (op_registry().get(name).is_view()) continue;
    EXPECT_NO_THROW((void)kernel_registry().get(name, DeviceKind::kCpu)) << name;
  }
}

}  // namespace
}  // namespace hone::test
