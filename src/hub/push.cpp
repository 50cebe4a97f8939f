#include "hub/push.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/json_value.h"
#include "core/strings.h"
#include "core/yaml.h"
#include "hub/lfs.h"
#include "hub/url.h"

namespace hone {
namespace {

constexpr std::size_t kMostFiles = 256;  // files per preupload request
constexpr std::int64_t kSample = 512;    // bytes of a file by which the hub distinguishes text from binary
constexpr int kMostPages = 1000;         // upper limit for the list of commits
constexpr std::string_view kBusy = "another conflicting operation is in progress";

std::string checked_token(std::string token) {
  if (is_offline()) throw Error("push to the hub", "HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE");
  if (token.empty()) {
    throw Error("push to the hub", "no token", "set HF_TOKEN or hub_token, or run `huggingface-cli login`");
  }
  const auto is_visible = [](unsigned char c) { return c > 32 && c < 127; };
  if (!std::ranges::all_of(token, is_visible)) {
    throw Error("push to the hub", "the token contains white space or control characters");
  }
  return token;
}

// The hub rejects concurrent commits to one repository; the second can be made later.
bool is_conflict(const HttpAnswer& answer) { return answer.status == 409 || answer.status == 412; }
bool is_busy(const HttpAnswer& answer) { return answer.status == 409 && answer.body.find(kBusy) != std::string::npos; }

std::string json_text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Returns the URL of the next page from the Link header; empty after the last page.
std::string next_page(const HttpAnswer& answer) {
  const auto link = answer.headers.find("link");
  if (link == answer.headers.end()) return "";
  for (const std::string& part : split(link->second, ',')) {
    const std::size_t begin = part.find('<');
    const std::size_t end = part.find('>');
    if (part.find("rel=\"next\"") == std::string::npos || begin == std::string::npos || end == std::string::npos)
      continue;
    const std::string url = part.substr(begin + 1, end - begin - 1);
    return origin_of(url) == origin_of(hub_endpoint()) ? url : "";
  }
  return "";
}

std::string as_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

// The files of a commit, grouped by the way in which the hub requires them.
struct CommitFiles {
  std::vector<UploadFile> regular;  // sent within the commit
  std::vector<UploadFile> large;    // uploaded before, referenced in the commit
};

CommitFiles ask_for_modes(const HubApi& api, const HubRepo& repo, std::span<const UploadFile> files) {
  CommitFiles sorted;
  for (std::size_t at = 0; at < files.size(); at += kMostFiles) {
    const auto chunk = files.subspan(at, std::min(kMostFiles, files.size() - at));
    // Ask the hub how each file must be uploaded; it decides by the path, the size and a sample of the content.
    Json list = Json::array();
    for (const UploadFile& file : chunk) {
      std::string sample(static_cast<std::size_t>(std::min(kSample, file.size())), '\0');
      file.read(0, sample);
      list.push_back({{"path", file.path()}, {"sample", encode_base64(sample)}, {"size", file.size()}});
    }
    const Json answer = api.json(
        {.url = text_of(hub_endpoint(), "/api/", api_path(repo), "/preupload/", escaped_revision(repo.revision)),
         .body = Json{{"files", list}}.dump(-1, ' ', false, Json::error_handler_t::replace),
         .action = "take files",
         .where = shown(repo.name)});
    std::map<std::string, Json> said;
    if (const auto given = answer.find("files"); given != answer.end() && given->is_array()) {
      for (const Json& item : *given) {
        if (item.is_object()) said[json_text(item, "path")] = item;
      }
    }
    // Sort the files, and leave out those that the branch already has.
    for (const UploadFile& file : chunk) {
      const auto item = said.find(file.path());
      const std::string mode = item == said.end() ? "" : json_text(item->second, "uploadMode");
      if (mode != "lfs" && mode != "regular") {
        throw Error(text_of(shown(repo.name), " ", file.path()), "the hub's answer has no upload mode for the file");
      }
      if (item->second.value("shouldIgnore", false)) continue;
      const bool is_large = mode == "lfs" && file.size() > 0;  // the storage accepts no empty files
      const std::string there = json_text(item->second, "oid");
      if (!there.empty() && there == (is_large ? file.sha256() : file.git_sha1())) continue;
      (is_large ? sorted.large : sorted.regular).push_back(file);
    }
  }
  return sorted;
}

std::string commit_body(const HubCommit& commit, const CommitFiles& files) {
  std::string body = as_line({{"key", "header"}, {"value", {{"summary", commit.message}, {"description", ""}}}});
  for (const UploadFile& file : files.regular) {
    body += as_line(
        {{"key", "file"},
         {"value", {{"content", encode_base64(file.content())}, {"path", file.path()}, {"encoding", "base64"}}}});
  }
  for (const UploadFile& file : files.large) {
    body += as_line(
        {{"key", "lfsFile"},
         {"value", {{"path", file.path()}, {"algo", "sha256"}, {"oid", file.sha256()}, {"size", file.size()}}}});
  }
  return body;
}

}  // namespace

HubWriter::HubWriter(std::string token, RetryPolicy patience) : api_(checked_token(std::move(token)), patience) {}

std::string HubWriter::user() const {
  const Json answer = api_.json(
      {.url = hub_endpoint() + "/api/whoami-v2", .body = {}, .action = "take the token", .where = "push to the hub"});
  const std::string name = json_text(answer, "name");
  if (!is_repo_name(name)) throw Error("push to the hub", "the hub's answer has no name for the token's owner");
  const auto auth = answer.find("auth");
  const auto access = auth != answer.end() && auth->is_object() ? auth->find("accessToken") : answer.end();
  const bool says = auth != answer.end() && auth->is_object() && access != auth->end() && access->is_object();
  if (says && json_text(*access, "role") == "read") {
    throw Error("push to the hub", text_of("the token of ", name, " is read-only"), "create a token with write access");
  }
  return name;
}

std::string HubWriter::full_name(const std::string& name) const {
  return name.find('/') == std::string::npos ? text_of(user(), "/", name) : name;
}

bool HubWriter::can_see(const HubRepo& repo) const {
  try {
    (void)api_.call({.url = text_of(hub_endpoint(), "/api/", api_path(repo)),
                     .body = {},
                     .action = "show the repository",
                     .where = shown(repo.name)});
  } catch (const HubRefusal&) {
    return false;
  }
  return true;
}

void HubWriter::create_repo(const HubRepo& repo, std::optional<bool> is_private) const {
  const std::size_t slash = repo.name.find('/');
  Json request{{"name", repo.name.substr(slash == std::string::npos ? 0 : slash + 1)},
               {"organization", slash == std::string::npos ? Json(nullptr) : Json(repo.name.substr(0, slash))}};
  if (is_private) request["private"] = *is_private;
  request["type"] = repo.kind == RepoKind::kModel ? "model" : "dataset";
  try {
    (void)api_.call({.url = hub_endpoint() + "/api/repos/create",
                     .body = request.dump(),
                     .action = "create the repository",
                     .where = shown(repo.name),
                     .is_passing = is_busy});
  } catch (const HubRefusal& refusal) {
    if (refusal.status() == 409) return;  // it exists already
    // A token without permission to create repositories may still write to an existing one.
    if (refusal.status() != 403 || !can_see(repo)) throw;
  }
}

std::string HubWriter::first_commit(const HubRepo& repo) const {
  std::string url = text_of(hub_endpoint(), "/api/", api_path(repo), "/commits/main");
  std::string commit;
  for (int page = 0; !url.empty(); ++page) {
    if (page == kMostPages) throw Error(shown(repo.name), "the hub's list of commits does not end");
    const HttpAnswer answer =
        api_.call({.url = url, .body = {}, .action = "list the commits", .where = shown(repo.name)});
    const Json list = parse_json(answer.body, text_of("the hub's commits of ", repo.name));
    if (list.is_array() && !list.empty() && list.back().is_object()) commit = json_text(list.back(), "id");
    url = next_page(answer);
  }
  return commit;
}

void HubWriter::create_branch(const HubRepo& repo) const {
  check_revision(repo);
  Json request = Json::object();
  if (const std::string commit = first_commit(repo); !commit.empty()) request["startingPoint"] = commit;
  try {
    (void)api_.call(
        {.url = text_of(hub_endpoint(), "/api/", api_path(repo), "/branch/", escaped_revision(repo.revision)),
         .body = request.dump(),
         .action = text_of("create the branch ", repo.revision),
         .where = shown(repo.name)});
  } catch (const HubRefusal& refusal) {
    if (refusal.status() != 409) throw;  // it exists already
  }
}

HubPushed HubWriter::push(const HubCommit& commit) const {
  const CommitFiles files = ask_for_modes(api_, commit.repo, commit.files);
  if (files.regular.empty() && files.large.empty()) return {};
  std::int64_t bytes = 0;
  for (const UploadFile& file : files.large) bytes += file.size();
  HubPushed pushed;
  if (!files.large.empty()) {
    TransferBar bar("Pushing " + commit.repo.name, bytes, commit.in_background);
    pushed.bytes_sent = upload_objects(api_, commit.repo, files.large, bar);
  }
  const Json answer = api_.json({.url = text_of(hub_endpoint(), "/api/", api_path(commit.repo), "/commit/",
                                                escaped_revision(commit.repo.revision)),
                                 .body = commit_body(commit, files),
                                 .action = text_of("commit to ", commit.repo.revision),
                                 .where = shown(commit.repo.name),
                                 .content_type = "application/x-ndjson",
                                 .is_passing = is_conflict});
  pushed.commit = json_text(answer, "commitOid");
  if (pushed.commit.empty()) throw Error(shown(commit.repo.name), "the hub's answer has no commit");
  return pushed;
}

}  // namespace hone
