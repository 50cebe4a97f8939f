// Compares the requests of hone's pushes with those of huggingface_hub. Run by scripts/check_hub.sh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "hub/push.h"
#include "support/environment.h"
#include "support/paths.h"
#include "support/small_hub.h"

namespace hone::test {
namespace {

constexpr const char* kPeerToken = "hf_token";

// Returns the modifying requests in a form that is independent of the order of files, which is not defined.
std::multiset<std::string> changes_of(SmallHub& hub) {
  std::multiset<std::string> changes;
  for (const std::string& request : hub.bodies()) {
    const std::size_t end = request.find('\n');
    const std::string line = request.substr(0, end);
    if (!line.starts_with("POST ") || line.find("validate-yaml") != std::string::npos) continue;
    std::multiset<std::string> parts;
    for (const std::string& text : split(request.substr(end + 1), '\n')) {
      if (text.empty()) continue;
      Json body = parse_json(text, line);
      for (const char* list : {"files", "objects"}) {
        if (!body.contains(list)) continue;
        for (const Json& item : body[list]) parts.insert(item.dump());
        body.erase(list);
      }
      parts.insert(body.dump());
    }
    std::string whole = line;
    for (const std::string& part : parts) whole += "\n  " + part;
    changes.insert(whole);
  }
  return changes;
}

TEST(HubPeer, AsksAsHuggingfaceHubDoes) {
  const char* client = std::getenv("HONE_HUB_CLIENT");
  if (client == nullptr) GTEST_SKIP() << "scripts/check_hub.sh runs it";
  const TemporaryDirectory folder;
  std::string big;
  for (int i = 0; i < 3000; ++i) big += std::to_string(i * 7919);
  write_file(folder.path() / "model.safetensors", big);
  write_file(folder.path() / "config.json", "{\"name\": \"naïve\"}\n");
  write_file(folder.path() / "README.md", "---\nlibrary_name: transformers\n---\n# A model\n");
  write_file(folder.path() / "empty.txt", "");
  for (const std::size_t chunk : {std::size_t{0}, std::size_t{3000}}) {
    SmallHub ours, theirs;
    for (SmallHub* hub : {&ours, &theirs}) {
      hub->need_token(kPeerToken);
      hub->chunk_size = chunk;
    }
    {
      const Environment endpoint(Variables{{"HF_ENDPOINT", ours.endpoint()}, {"HF_HUB_OFFLINE", std::nullopt}});
      const HubWriter writer(kPeerToken);
      HubRepo repo{.name = "Org/New"};
      std::vector<UploadFile> files;
      for (const std::string& name : list_folder(folder.path())) files.emplace_back(name, folder.path() / name);
      writer.create_repo(repo, true);
      (void)writer.push({.repo = repo, .files = files, .message = "A push"});
      repo.revision = "v1";
      writer.create_branch(repo);
      (void)writer.push({.repo = repo, .files = files, .message = "On a branch"});
    }
    const std::string command =
        text_of(client, " ", theirs.endpoint(), " ", kPeerToken, " Org/New ", folder.path().string(), " >&2");
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    EXPECT_THAT(changes_of(ours), testing::ContainerEq(changes_of(theirs)));
    for (const char* branch : {"main", "v1"}) {
      const SmallHubFiles a = ours.files("models/Org/New", branch);
      const SmallHubFiles b = theirs.files("models/Org/New", branch);
      ASSERT_EQ(a.size(), b.size());
      for (const auto& [name, file] : a) EXPECT_EQ(file.content, b.at(name).content) << name;
    }
    EXPECT_FALSE(ours.storage_saw_token());
  }
}

}  // namespace
}  // namespace hone::test
