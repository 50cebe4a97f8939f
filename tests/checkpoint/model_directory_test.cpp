#include "checkpoint/model_directory.h"
#include "core/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/files.h"
#include "support/environment.h"
#include "support/paths.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

class ModelFolder : public testing::Test {
 protected:
  [[nodiscard]] fs::path path() const { return folder_.path() / "model"; }

  void write(std::uint64_t max_shard_bytes, float value = 1) {
    values_.assign(8, value);
    std::vector<TensorSource> sources;
    for (const char* name : {"b", "a", "c"}) {
      sources.push_back(tensor_source(name, {2, 4}, std::span<const float>(values_)));
    }
    const Json config{{"model_type", "llama"}, {"hidden_size", 64}};
    const Json generation{{"eos_token_id", {1, 2}}};
    write_model_directory(
        path(),
        {.config = config, .generation_config = &generation, .weights = sources, .max_shard_bytes = max_shard_bytes});
  }

 private:
  TemporaryDirectory folder_;
  std::vector<float> values_;
};

TEST_F(ModelFolder, ComesBackFromOneFile) {
  write(1000);
  EXPECT_THAT(list_folder(path()), ElementsAre("config.json", "generation_config.json", "model.safetensors"));
  const ModelDirectory model(path());
  EXPECT_EQ(model.config()["hidden_size"], 64);
  ASSERT_NE(model.generation_config(), nullptr);
  EXPECT_EQ((*model.generation_config())["eos_token_id"], (Json{1, 2}));
  EXPECT_THAT(model.weights().names(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(model.weights().at("b").shape, ElementsAre(2, 4));
  EXPECT_EQ(model.weights().find("d"), nullptr);
  EXPECT_THAT([&] { (void)model.weights().at("aa"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("model.safetensors"), HasSubstr("'aa'"))));
}

TEST_F(ModelFolder, ComesBackFromShards) {
  write(64);  // two tensors of 32 bytes per shard, in the order of the sources
  EXPECT_THAT(list_folder(path()),
              ElementsAre("config.json", "generation_config.json", "model-00001-of-00002.safetensors",
                          "model-00002-of-00002.safetensors", "model.safetensors.index.json"));
  EXPECT_EQ(read_json(path() / "model.safetensors.index.json").dump(),
            R"({"metadata":{"total_parameters":24,"total_size":96},"weight_map":{)"
            R"("a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors",)"
            R"("c":"model-00002-of-00002.safetensors"}})");
  const ModelDirectory model(path());
  EXPECT_EQ(model.weights().files().size(), 2u);
  EXPECT_THAT(model.weights().names(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(model.weights().at("c").file, HasSubstr("model-00002-of-00002.safetensors"));
}

TEST_F(ModelFolder, ATensorLargerThanAShardGetsItsOwn) {
  write(31);
  EXPECT_EQ(ModelDirectory(path()).weights().files().size(), 3u);
}

TEST_F(ModelFolder, ReplacesWhatWasThere) {
  const auto value = [&] { return read_values<float>(ModelDirectory(path()).weights().at("c"))[0]; };
  float written = 0;
  for (const std::uint64_t bytes : {1000, 64, 31, 64, 1000, 31, 31}) {
    write(bytes, ++written);
    EXPECT_EQ(value(), written);
    const std::size_t shards = bytes == 1000 ? 1 : bytes == 64 ? 3 : 4;  // including the index
    EXPECT_EQ(list_folder(path()).size(), 2 + shards);
  }
}

TEST_F(ModelFolder, MayHaveNoWeights) {
  hone::create_directories(path());
  write_file(path() / "config.json", "{}");
  const ModelDirectory model(path());
  EXPECT_TRUE(model.weights().empty());
  EXPECT_EQ(model.generation_config(), nullptr);
  EXPECT_THAT([&] { (void)model.weights().at("a"); },
              ThrowsMessage<Error>(AllOf(HasSubstr(path().string()), HasSubstr("no weights"))));
}

TEST_F(ModelFolder, NeedsAConfig) {
  EXPECT_THAT([&] { ModelDirectory{path()}; }, ThrowsMessage<Error>(HasSubstr("no such folder")));
  hone::create_directories(path());
  EXPECT_THAT([&] { ModelDirectory{path()}; }, ThrowsMessage<Error>(HasSubstr("no config.json")));
  write_file(path() / "config.json", "[]");
  EXPECT_THAT([&] { ModelDirectory{path()}; }, ThrowsMessage<Error>(HasSubstr("not a JSON object but array")));
  write_file(path() / "config.json", "{");
  EXPECT_THAT([&] { ModelDirectory{path()}; }, ThrowsMessage<Error>(HasSubstr("not valid JSON")));
}

TEST_F(ModelFolder, ChecksTheIndex) {
  write(64);
  const fs::path index = path() / "model.safetensors.index.json";
  const std::string good = read_file(index);
  const auto error_with = [&](const std::string& content) -> std::string {
    write_file(index, content);
    try {
      const ModelDirectory model(path());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_with(good), "");
  EXPECT_THAT(error_with("{"), AllOf(HasSubstr(index.string()), HasSubstr("not valid JSON")));
  EXPECT_THAT(error_with("[]"), HasSubstr("no weight_map"));
  EXPECT_THAT(error_with(R"({"weight_map":{"a":"x.safetensors"})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_with(R"([{"weight_map":{"a":"x.safetensors"}}])"), HasSubstr("no weight_map"));
  EXPECT_THAT(error_with(R"({"metadata":{"weight_map":{"a":"x.safetensors"}}})"), HasSubstr("no weight_map"));
  EXPECT_THAT(error_with(R"({"weight_map":["x.safetensors"]})"), HasSubstr("no weight_map"));
  EXPECT_THAT(error_with(R"({"weight_map":{"a":"x.safetensors"},"weight_map":null})"), HasSubstr("no weight_map"));
  EXPECT_THAT(error_with(R"({"weight_map":{"a":{"b":"x.safetensors"}}})"), HasSubstr("'a' has no file name"));
  EXPECT_THAT(error_with(R"({"weight_map":{}})"), HasSubstr("empty"));
  EXPECT_THAT(error_with(R"({"weight_map":{"a":1}})"), HasSubstr("'a' has no file name"));
  EXPECT_THAT(error_with(R"({"weight_map":{"a":"../x"}})"), HasSubstr("not the name of a file in this folder"));
  EXPECT_THAT(error_with(R"({"weight_map":{"a":"x.safetensors"}})"),
              AllOf(HasSubstr("x.safetensors"), HasSubstr("is missing")));
  EXPECT_THAT(error_with(R"({"weight_map":{"c":"model-00001-of-00002.safetensors"}})"),
              AllOf(HasSubstr("model-00001-of-00002.safetensors: holds no tensor 'c'")));

  write_file(index, good);
  fs::copy_file(path() / "model-00001-of-00002.safetensors", path() / "copy.safetensors");
  EXPECT_THAT(error_with(R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"copy.safetensors"}})"),
              HasSubstr("is also in"));
  fs::remove(index);
  EXPECT_THAT([&] { ModelDirectory{path()}; }, ThrowsMessage<Error>(HasSubstr("interrupted")));
}

TEST(ResolveModel, FindsAFolder) {
  const TemporaryDirectory folder;
  EXPECT_EQ(resolve_model(folder.path().string()), folder.path());
  write_file(folder.path() / "file", "");
  EXPECT_THAT([&] { (void)resolve_model((folder.path() / "file").string()); },
              ThrowsMessage<Error>(HasSubstr("is a file")));
  EXPECT_THAT([&] { (void)resolve_model((folder.path() / "none").string()); },
              ThrowsMessage<Error>(HasSubstr("no such model folder")));
  EXPECT_THROW((void)resolve_model(""), Error);
  EXPECT_THROW((void)resolve_model(std::string(10'000, 'a')), Error);
}

TEST(ResolveModel, FindsASnapshotInTheCache) {
  const TemporaryDirectory home;
  test::Environment environment({{"HF_HOME", home.path().string()}, {"HF_HUB_OFFLINE", "1"}, {"HF_HUB_CACHE", {}}});
  const fs::path cached = home.path() / "hub" / "models--Org--Model-1.5B";
  const auto message = [](std::string_view name, std::string_view revision = "main") -> std::string {
    try {
      return "found " + resolve_model(name, revision).string();
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(message("Org/Model-1.5B"), AllOf(HasSubstr("not found"), HasSubstr(cached.string())));
  hone::create_directories(cached / "refs");
  hone::create_directories(cached / "snapshots" / "0123abcd");
  write_file(cached / "refs" / "main", "0123abcd\n");
  EXPECT_EQ(resolve_model("Org/Model-1.5B"), cached / "snapshots" / "0123abcd");
  EXPECT_EQ(resolve_model("Org/Model-1.5B", "0123abcd"), cached / "snapshots" / "0123abcd");
  EXPECT_THAT(message("Org/Model-1.5B", "v2"), HasSubstr("snapshots/v2"));
  EXPECT_THAT(message("Org/Model-1.5B", "../main"), HasSubstr("revision"));
  EXPECT_THAT(message("Org/../Model"), HasSubstr("no such model folder"));
  write_file(cached / "refs" / "main", "../../../etc");
  EXPECT_THAT(message("Org/Model-1.5B"), HasSubstr("does not name a commit"));

  environment.set("HF_HUB_CACHE", (home.path() / "hub").string());
  environment.set("HF_HOME", "/nowhere");
  EXPECT_EQ(resolve_model("Org/Model-1.5B", "0123abcd"), cached / "snapshots" / "0123abcd");
}

}  // namespace
}  // namespace hone
