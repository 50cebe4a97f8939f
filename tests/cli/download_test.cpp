// Tests commands that download models or data from the hub.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "core/files.h"
#include "core/strings.h"
#include "support/environment.h"
#include "support/full_disk.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "support/small_hub.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Download, OntoAFullDiskIsSaidAndGoesOnWhenThereIsRoom) {
  const TemporaryDirectory folder;
  const auto path = [&](const std::string& relative) { return (folder.path() / relative).string(); };
  write_miniature(folder.path());
  const Ended trained = run_program(
      pretrain_arguments(folder.path(), {"--max_steps", "1", "--save_strategy", "no", "--output_dir", path("model")}));
  ASSERT_EQ(trained.code, 0) << trained.output;
  const std::string weights = read_file(path("model/model.safetensors"));
  const std::size_t room = weights.size() - 1000;
  std::map<std::string, SmallHubFile> files;
  for (const std::string& name : list_folder(path("model"))) {
    if (!is_file(path("model/" + name))) continue;
    files[name] = {.content = read_file(path("model/" + name)), .is_lfs = name == "model.safetensors", .served = {}};
    ASSERT_TRUE(files[name].is_lfs || files[name].content.size() < room) << name;
  }
  SmallHub hub;
  hub.add("models/Org/Small", files);
  const Environment environment(hub.variables(path("cache")));
  const std::vector<std::string> convert{"convert", "Org/Small", "--output_dir", path("out")};

  const auto on_a_full_disk = [&] {
    const FullDisk disk(room);
    return run_program(convert);
  };
  const fs::path blobs = folder.path() / "cache/hub/models--Org--Small/blobs";
  for (int again = 0; again < 2; ++again) {  // the second run finds the disk already full
    const Ended ended = on_a_full_disk();
    EXPECT_EQ(ended.code, 1) << ended.output;
    EXPECT_THAT(ended.output,
                AllOf(StartsWith("hone: error: " + blobs.string()),
                      HasSubstr(".incomplete: cannot write: File too large (free some space, or set HF_HOME to "
                                "another disk; a new download continues from the partial file)"),
                      EndsWith(")\n")));
    EXPECT_EQ(split(ended.output, '\n').size(), 2u) << ended.output;  // one line and the empty string after it
    EXPECT_FALSE(fs::exists(path("out/model.safetensors")));
    std::vector<std::string> begun;
    for (const std::string& name : list_folder(blobs)) {
      if (name.ends_with(".incomplete")) begun.push_back(name);
    }
    ASSERT_EQ(begun.size(), 1u);
    EXPECT_EQ(read_file(blobs / begun[0]), weights.substr(0, room));
  }

  const Ended ended = run_program(convert);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(read_file(path("out/model.safetensors")), weights);
  EXPECT_THAT(
      hub.requests(),
      Contains(AllOf(HasSubstr("GET /storage"), EndsWith("Range: bytes=" + std::to_string(room) + "-"))).Times(2));
  for (const std::string& name : list_folder(blobs)) EXPECT_FALSE(name.ends_with(".incomplete")) << name;
}

}  // namespace
}  // namespace hone::test
