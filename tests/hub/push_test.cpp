// Pushes to a hub on loopback: tests the uploaded files, the requests, and the handling of failures.
#include "hub/push.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "hub/hub.h"
#include "hub/url.h"
#include "support/environment.h"
#include "support/paths.h"
#include "support/small_hub.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

constexpr const char* kToken = "hf_verySecretToken";
constexpr RetryPolicy kQuick{.tries = 4, .first_pause = std::chrono::milliseconds(0)};
const HubRepo kRepo{.name = "Org/New"};

std::string noise(std::size_t size, std::uint32_t seed) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}

class PushTest : public testing::Test {
 protected:
  PushTest() { hub.need_token(kToken); }
  fs::path write(const std::string& name, const std::string& content) {
    write_file(home_.path() / name, content);
    return home_.path() / name;
  }
  // A model folder of large and small files, one of them empty.
  std::vector<UploadFile> model_files() {
    return {{"config.json", write("config.json", "{\"a\": \"\\u00e4\"}\n")},
            {"model-1.safetensors", write("one", noise(20'001, 1))},
            {"model-2.safetensors", write("two", noise(9'000, 2))},
            {"empty.safetensors", write("empty", "")},
            {"runs/events", write("events", noise(100, 3))},
            {"README.md", std::string("# A model\n")}};
  }
  // Returns the error message, and checks that it does not contain the token.
  template <class Action>
  std::string failure(const Action& action) {
    testing::internal::CaptureStderr();
    std::string text = "no error";
    try {
      action();
    } catch (const Error& error) {
      text = error.what();
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(text + said, Not(HasSubstr(kToken)));
    return text;
  }
  HubPushed push(const std::vector<UploadFile>& files, const HubRepo& repo = kRepo) {
    const HubWriter writer(kToken, kQuick);
    writer.create_repo(repo, true);
    return writer.push({.repo = repo, .files = files, .message = "A push", .in_background = true});
  }
  // Checks that hone downloads the repository with these files byte for byte.
  void expect_downloads(const std::vector<UploadFile>& files, const HubRepo& repo = kRepo) {
    environment_.set("HF_TOKEN", kToken);
    fs::remove_all(home_.path() / "cache");
    const HubListing listing = list_repo(repo);
    std::vector<std::string> paths;
    for (const UploadFile& file : files) paths.push_back(file.path());
    const fs::path snapshot = download(repo, listing, paths);
    for (const UploadFile& file : files) EXPECT_EQ(read_file(snapshot / file.path()), file.content()) << file.path();
  }

  SmallHub hub;
  TemporaryDirectory home_;
  Environment environment_{hub.variables(home_.path() / "cache")};
};

TEST_F(PushTest, WhatIsPushedDownloadsAgain) {
  const std::vector<UploadFile> files = model_files();
  const HubPushed pushed = push(files);
  EXPECT_THAT(pushed.commit, SizeIs(40));
  EXPECT_EQ(pushed.bytes_sent, 29'001);
  EXPECT_EQ(hub.is_private("models/Org/New"), true);
  EXPECT_TRUE(hub.files("models/Org/New").at("model-1.safetensors").is_lfs);
  EXPECT_FALSE(hub.files("models/Org/New").at("empty.safetensors").is_lfs);
  EXPECT_THAT(hub.messages(), ElementsAre("A push"));
  EXPECT_FALSE(hub.storage_saw_token());
  expect_downloads(files);
}

TEST_F(PushTest, InPartsToo) {
  hub.chunk_size = 3000;
  const std::vector<UploadFile> files = model_files();
  EXPECT_EQ(push(files).bytes_sent, 29'001);
  EXPECT_THAT(hub.requests(), Contains(HasSubstr("PUT storage/part/")).Times(7 + 3));
  EXPECT_THAT(hub.requests(), Contains(HasSubstr("POST /complete/")).Times(2));
  EXPECT_THAT(hub.requests(), Contains(HasSubstr("POST /verify/")).Times(2));
  EXPECT_FALSE(hub.storage_saw_token());
  expect_downloads(files);
}

TEST_F(PushTest, TheTokenStaysWithTheHub) {
  hub.verifies_elsewhere = true;
  const std::vector<UploadFile> files = model_files();
  push(files);
  EXPECT_THAT(hub.requests(), Contains(HasSubstr("POST storage/verify/")).Times(2));
  EXPECT_FALSE(hub.storage_saw_token());
  expect_downloads(files);
}

TEST_F(PushTest, APartThatIsCutIsSentAgainAlone) {
  hub.chunk_size = 3000;
  hub.cut_upload_after = 1000;
  hub.uploads_before_cut = 2;
  hub.upload_cuts = 2;
  const std::vector<UploadFile> files = model_files();
  EXPECT_EQ(failure([&] { push(files); }), "no error");
  EXPECT_THAT(hub.requests(), Contains(HasSubstr("PUT storage/part/")).Times(7 + 3));  // complete uploads
  expect_downloads(files);
}

TEST_F(PushTest, AfterAnInterruptionWhatIsStoredIsNotSentAgain) {
  hub.cut_upload_after = 100;
  hub.uploads_before_cut = 1;
  hub.upload_cuts = 1000;
  const std::vector<UploadFile> files = model_files();
  EXPECT_THAT(failure([&] { push(files); }),
              AllOf(StartsWith("'Org/New' model-"), HasSubstr("no answer from http://127.0.0.1:"),
                    HasSubstr("to store its content, tried 4 times"), Not(HasSubstr("\n"))));
  EXPECT_THAT(hub.messages(), IsEmpty());
  hub.upload_cuts = 0;
  hub.forget_requests();
  const HubPushed pushed = push(files);
  EXPECT_TRUE(pushed.bytes_sent == 20'001 || pushed.bytes_sent == 9'000) << pushed.bytes_sent;
  EXPECT_THAT(hub.requests(), Contains(HasSubstr("PUT storage/")).Times(1));
  expect_downloads(files);
}

TEST_F(PushTest, WhatTheBranchHasIsNotCommittedAgain) {
  hub.names_checksums = true;
  std::vector<UploadFile> files = model_files();
  EXPECT_NE(push(files).commit, "");
  EXPECT_EQ(push(files).commit, "");
  files[0] = UploadFile("config.json", std::string("{}"));
  EXPECT_NE(push(files).commit, "");
  EXPECT_THAT(hub.messages(), SizeIs(2));
  EXPECT_THAT(hub.bodies().back(), AllOf(HasSubstr("config.json"), Not(HasSubstr("safetensors"))));
}

TEST_F(PushTest, FilesThatTheRepositoryIgnoresAreLeftOut) {
  push({{"a.txt", std::string("a")}, {"b.ignored", std::string("b")}});
  EXPECT_TRUE(hub.files("models/Org/New").contains("a.txt"));
  EXPECT_FALSE(hub.files("models/Org/New").contains("b.ignored"));
}

TEST_F(PushTest, ABranchBeginsAtTheFirstCommit) {
  const HubRepo branch{.name = "Org/New", .revision = "v01.00-step-000000007"};
  push({{"main.txt", std::string("on main")}});
  const HubWriter writer(kToken, kQuick);
  writer.create_branch(branch);
  writer.create_branch(branch);  // the branch exists already
  const std::vector<UploadFile> files = model_files();
  (void)writer.push({.repo = branch, .files = files, .message = "On a branch", .in_background = true});
  EXPECT_FALSE(hub.files("models/Org/New", branch.revision).contains("main.txt"));
  EXPECT_FALSE(hub.files("models/Org/New").contains("config.json"));
  expect_downloads(files, branch);
}

TEST_F(PushTest, AFileThatIsDeletedMeanwhileIsPushedWhole) {
  const std::vector<UploadFile> files = model_files();
  for (const char* name : {"one", "two", "config.json"}) fs::remove(home_.path() / name);
  push(files);
  EXPECT_EQ(hub.files("models/Org/New").at("model-1.safetensors").content, noise(20'001, 1));
}

TEST_F(PushTest, AFileThatShrinksIsSaid) {
  const UploadFile file("model.safetensors", write("big", noise(8000, 5)));
  fs::resize_file(home_.path() / "big", 100);
  EXPECT_THAT(failure([&] { push({file}); }), HasSubstr("became shorter while it was pushed (push it again)"));
}

TEST_F(PushTest, WhatPassesIsAskedAgain) {
  const std::vector<UploadFile> files = model_files();
  for (const char* part :
       {"/api/repos/create", "/preupload/", "/objects/batch", "PUT storage", "/verify/", "/commit/"}) {
    hub.fail(part, "503 Service Unavailable", 2);
  }
  hub.fail("/commit/", "409 Conflict", 1);
  hub.fail("/api/repos/create", "409 Conflict", 1, "another conflicting operation is in progress");
  EXPECT_EQ(failure([&] { push(files); }), "no error");
  expect_downloads(files);
}

TEST_F(PushTest, AddressesThatHaveExpiredAreAskedForAgain) {
  hub.chunk_size = 3000;
  hub.fail("PUT storage/part", "403 Forbidden", 1, "<Error>Request has expired</Error>");
  const std::vector<UploadFile> files = model_files();
  EXPECT_EQ(failure([&] { push(files); }), "no error");
  EXPECT_THAT(hub.requests(), Contains(HasSubstr("objects/batch")).Times(2));
  expect_downloads(files);
}

TEST_F(PushTest, RefusalsAreOneLine) {
  const std::vector<UploadFile> files = model_files();
  const std::vector<std::vector<std::string>> table{
      {"/api/repos/create", "403 Forbidden", R"({"error": "No rights here"})",
       "'Org/New': the hub refuses to create the repository (403): No rights here (use a token with write "
       "access to it)"},
      {"/api/repos/create", "401 Unauthorized", R"({"error": "Invalid token hf_verySecretToken"})",
       "'Org/New': the hub refuses to create the repository (401): Invalid token ... (put a valid token into "
       "HF_TOKEN, hub_token or the file of `huggingface-cli login`)"},
      {"/preupload/", "403 Forbidden", "{}",
       "'Org/New': the hub refuses to take files (403) (use a token with write access to it)"},
      {"/preupload/", "404 Not Found", "{}",
       "'Org/New': the hub refuses to take files (404) (the repository does not exist, or the token has no access to "
       "it)"},
      {"/preupload/", "502 Bad Gateway", "<html>",
       "'Org/New': the hub answers 502 to take files, tried 4 times (try again later)"},
      {"/preupload/", "200 OK", "[]", "'Org/New': the hub's answer to take files is not a JSON object"},
      {"/preupload/", "200 OK", "{}", "'Org/New' config.json: the hub's answer has no upload mode for the file"},
      {"/objects/batch", "413 Payload Too Large", R"({"message": "Your storage is full"})",
       "'Org/New': the hub refuses to store large files (413): Your storage is full (it is larger than the hub "
       "accepts)"},
      {"/commit/", "409 Conflict", R"({"error": "A commit has happened since"})",
       "'Org/New': the hub refuses to commit to main (409): A commit has happened since"},
      {"/commit/", "413 Payload Too Large", "{}",
       "'Org/New': the hub refuses to commit to main (413) (it is larger than the hub accepts)"},
      {"/commit/", "200 OK", "{}", "'Org/New': the hub's answer has no commit"},
      {"/verify/", "422 Unprocessable Entity", R"({"error": "Size differs"})",
       "the hub refuses to confirm a large file (422): Size differs"},
      {"PUT storage", "413 Payload Too Large", "", "the hub refuses to store its content (413)"},
  };
  for (const auto& row : table) {
    SmallHub fresh;
    environment_.set("HF_ENDPOINT", fresh.endpoint());
    fresh.fail(row[0], row[1], 4, row[2]);
    const std::string line = failure([&] { push(files); });
    EXPECT_THAT(line, HasSubstr(row[3])) << row[0] << " " << row[1];
    EXPECT_THAT(line, Not(HasSubstr("\n")));
    EXPECT_THAT(fresh.messages(), IsEmpty());
  }
}

TEST_F(PushTest, WhoMayNotCreateMayWriteToWhatIsThere) {
  hub.add("models/Org/New", {});
  hub.fail("/api/repos/create", "403 Forbidden", 1);
  EXPECT_EQ(failure([&] { push(model_files()); }), "no error");
}

TEST_F(PushTest, TheTokenIsChecked) {
  const auto user = [&](const std::string& token) {
    return failure([&] { throw Error(HubWriter(token, kQuick).full_name("name")); });
  };
  EXPECT_EQ(user(kToken), "someone/name");
  EXPECT_THAT(user("other"), HasSubstr("push to the hub: the hub refuses to take the token (401)"));
  EXPECT_THAT(user(""), AllOf(HasSubstr("no token"), HasSubstr("HF_TOKEN")));
  EXPECT_THAT(user("two words"), HasSubstr("the token contains white space"));
  hub.role = "read";
  EXPECT_THAT(user(kToken), HasSubstr("the token of someone is read-only"));
  environment_.set("HF_ENDPOINT", "http://127.0.0.1:1");
  EXPECT_THAT(user(kToken), AllOf(HasSubstr("no answer from http://127.0.0.1:1"), HasSubstr("tried 4 times")));
  environment_.set("HF_HUB_OFFLINE", "1");
  EXPECT_THAT(user(kToken), HasSubstr("HF_HUB_OFFLINE is set"));
}

TEST_F(PushTest, ARepositoryThatMovedIsNotFollowedWithTheToken) {
  SmallHub other;
  hub.add("models/Org/New", {});
  hub.fail("/preupload/",
           "307 Temporary Redirect\r\nLocation: " + other.endpoint() + "/api/models/Org/Newer/preupload/main", 1);
  EXPECT_THAT(failure([&] { push(model_files()); }), HasSubstr("if the repository was renamed, use its new name"));
  EXPECT_THAT(other.requests(), IsEmpty());
}

TEST_F(PushTest, AHubThatNamesNonsenseIsRefused) {
  hub.chunk_size = 3000;
  const std::vector<UploadFile> files = model_files();
  const auto batch = [&](const std::string& actions) {
    hub.fail("objects/batch", "200 OK", 1,
             text_of(R"({"objects": [{"oid": ")", files[1].sha256(), R"(", "size": 1, )", actions, "}]}"));
    return failure([&] { push(files); });
  };
  EXPECT_THAT(batch(R"("actions": {"upload": {"href": "nowhere"}})"), HasSubstr("gives no URL to upload it"));
  EXPECT_THAT(batch(R"("error": {"code": 507, "message": "full"})"), HasSubstr("the hub does not accept it: full"));
  const std::string url = R"("href": "http://127.0.0.1:1/x", "header": )";
  EXPECT_THAT(batch(R"("actions": {"upload": {)" + url + R"({"chunk_size": "0"}}})"),
              HasSubstr("0 parts of '0' bytes"));
  EXPECT_THAT(batch(R"("actions": {"upload": {)" + url + R"({"chunk_size": 9000, "2": "u", "3": "u", "4": "u"}}})"),
              HasSubstr("3 parts of '9000' bytes for 20001 bytes"));
  EXPECT_THAT(batch(R"("actions": {"upload": {)" + url + R"({"a": "b\r\nc: d"}}})"), HasSubstr("invalid header"));
}

TEST_F(PushTest, OriginsAreWhoMaySeeTheToken) {
  EXPECT_EQ(origin_of("https://Hub.co/a/b?c#d"), "https://hub.co");
  EXPECT_EQ(origin_of("http://user:word@hub.co:80/a@b"), "http://hub.co:80");
  EXPECT_EQ(origin_of("https://hub.co?x=http://other"), "https://hub.co");
  EXPECT_EQ(origin_of("hub.co/a"), "");
  EXPECT_NE(origin_of("https://hub.co.evil.com/"), origin_of("https://hub.co/"));
}

TEST_F(PushTest, DatasetsHaveTheirOwnAddresses) {
  const HubRepo data{.kind = RepoKind::kDataset, .name = "Org/Data"};
  const std::vector<UploadFile> files{{"train.jsonl", noise(10'000, 9)}};
  push(files, data);
  EXPECT_THAT(hub.requests(), Contains(HasSubstr("POST /datasets/Org/Data.git/info/lfs/objects/batch")));
  expect_downloads(files, data);
}

}  // namespace
}  // namespace hone::test
