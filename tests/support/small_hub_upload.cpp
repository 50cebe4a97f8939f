// The small hub's side of pushes.
#include <algorithm>
#include <stdexcept>

#include "core/digest.h"
#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/small_hub.h"

namespace hone::test {
namespace {

std::string ok(const Json& json, const std::string& headers = "") {
  return http_answer("200 OK", json.dump(), "Content-Type: application/json\r\n" + headers);
}

std::string sha256_of(const std::string& content) {
  Sha256 sha;
  sha.update(content);
  return sha.finish();
}

}  // namespace

std::string SmallHub::next_commit() { return sha256_of(std::to_string(++commits_)).substr(0, 40); }

std::optional<std::string> SmallHub::answer_upload(const std::string& method, const std::string& path,
                                                   const std::string& body) {
  const bool posts = method == "POST";
  if (path == "/api/whoami-v2") return ok({{"name", user}, {"auth", {{"accessToken", {{"role", role}}}}}});
  if (posts && path == "/api/repos/create") return create(body);
  if (posts && path == "/api/validate-yaml") return ok({{"errors", Json::array()}, {"warnings", Json::array()}});
  if (posts && path.ends_with(".git/info/lfs/objects/batch")) return batch(body);
  if (posts && path.starts_with("/complete/")) return complete(path.substr(10), body);
  if (posts && path.starts_with("/verify/")) {
    const Json object = parse_json(body, "verify");
    const auto stored = stored_.find(object.at("oid").get<std::string>());
    const bool right = stored != stored_.end() && stored->second.size() == object.at("size").get<std::size_t>();
    return right ? ok(Json::object()) : http_answer("422 Unprocessable Entity", R"({"error": "it is not there"})");
  }
  for (auto& [name, repo] : repos_) {
    const std::string start = "/api/" + name;
    if (!path.starts_with(start)) continue;
    const std::string rest = path.substr(start.size());
    if (rest.empty() && !posts) return ok({{"id", name}});
    const auto behind = [&](const std::string& word) -> std::optional<std::string> {
      if (!rest.starts_with(word)) return std::nullopt;
      std::string branch = rest.substr(word.size());
      if (const std::size_t slash = branch.find("%2F"); slash != std::string::npos) branch.replace(slash, 3, "/");
      return branch;
    };
    if (behind("/commits/")) {  // the newest first, one a page
      const auto row = [](const std::string& id) {
        return Json{{"id", id},
                    {"authors", Json::array()},
                    {"date", "2025-01-01T00:00:00.000Z"},
                    {"title", ""},
                    {"message", ""}};
      };
      if (requests_.back().find("page=1") != std::string::npos) return ok(Json::array({row(repo.first)}));
      const std::string next = "Link: <" + endpoint() + path + "?page=1>; rel=\"next\"\r\n";
      return ok(Json::array({row(repo.branches.at("main"))}), next);
    }
    if (const auto branch = behind("/branch/"); branch && posts) {
      if (repo.branches.contains(*branch)) return http_answer("409 Conflict", R"({"error": "Reference exists"})");
      const Json request = parse_json(body, "branch");
      repo.branches[*branch] = request.value("startingPoint", repo.branches.at("main"));
      return ok(Json::object());
    }
    const auto preuploaded = behind("/preupload/");
    const auto committed = behind("/commit/");
    for (const auto& branch : {preuploaded, committed}) {
      if (!branch || !posts) continue;
      if (!repo.branches.contains(*branch)) {
        return http_answer("404 Not Found", R"({"error": "Invalid rev id"})", "X-Error-Code: RevisionNotFound\r\n");
      }
    }
    if (preuploaded && posts) return preupload(repo, *preuploaded, body);
    if (committed && posts) return commit(repo, *committed, body);
  }
  return std::nullopt;
}

std::string SmallHub::create(const std::string& body) {
  const Json request = parse_json(body, "create");
  const bool has_owner = request.contains("organization") && request["organization"].is_string();
  const std::string owner = has_owner ? request["organization"].get<std::string>() : user;
  const std::string name = owner + "/" + request.at("name").get<std::string>();
  const std::string key = request.value("type", "model") + "s/" + name;
  if (repos_.contains(key)) {
    return http_answer("409 Conflict",
                       Json{{"error", "You already created this model repo"}, {"url", endpoint() + "/" + name}}.dump());
  }
  Repo& repo = repos_[key];
  repo.first = repo.branches["main"] = next_commit();
  repo.commits[repo.first] = {{".gitattributes", {.content = "*.safetensors filter=lfs\n"}}};
  if (request.contains("private")) repo.is_private = request["private"].get<bool>();
  return ok({{"url", endpoint() + "/" + name}, {"name", name}});
}

std::string SmallHub::preupload(const Repo& repo, const std::string& branch, const std::string& body) {
  const SmallHubFiles& there = repo.commits.at(repo.branches.at(branch));
  Json files = Json::array();
  const Json request = parse_json(body, "preupload");
  for (const Json& file : request.at("files")) {
    const std::string path = file.at("path").get<std::string>();
    if (!decode_base64(file.at("sample").get<std::string>())) throw std::runtime_error("a sample that is no base64");
    const bool is_large = file.at("size").get<std::size_t>() >= large_from || path.ends_with(".safetensors");
    Json item{{"path", path},
              {"uploadMode", is_large ? "lfs" : "regular"},
              {"shouldIgnore", path.ends_with(".ignored")},
              {"oid", nullptr}};
    const auto known = there.find(path);
    if (names_checksums && known != there.end()) item["oid"] = small_hub_etag(known->second);
    files.push_back(item);
  }
  return ok({{"files", files}});
}

std::string SmallHub::batch(const std::string& body) {
  const Json request = parse_json(body, "batch");
  Json objects = Json::array();
  for (const Json& object : request.at("objects")) {
    const std::string oid = object.at("oid").get<std::string>();
    const std::size_t size = object.at("size").get<std::size_t>();
    Json answer{{"oid", oid}, {"size", size}};
    if (!stored_.contains(oid)) {
      Json upload{{"href", storage_.url() + "/object/" + oid}};
      if (chunk_size > 0 && size > chunk_size) {
        upload["href"] = endpoint() + "/complete/" + oid;
        upload["header"]["chunk_size"] = std::to_string(chunk_size);
        for (std::size_t part = 1; (part - 1) * chunk_size < size; ++part) {
          upload["header"][std::to_string(part)] = text_of(storage_.url(), "/part/", oid, "/", part, "?signed=yes");
        }
      }
      answer["actions"] = {
          {"upload", upload},
          {"verify", {{"href", (verifies_elsewhere ? storage_.url() : endpoint()) + "/verify/" + oid}}}};
    }
    objects.push_back(answer);
  }
  return ok({{"transfer", chunk_size > 0 ? "multipart" : "basic"}, {"objects", objects}});
}

std::string SmallHub::commit(Repo& repo, const std::string& branch, const std::string& body) {
  SmallHubFiles files = repo.commits.at(repo.branches.at(branch));
  for (const std::string& line : split(body, '\n')) {
    if (line.empty()) continue;
    const Json item = parse_json(line, "commit");
    const std::string key = item.at("key").get<std::string>();
    const Json& value = item.at("value");
    if (key == "header") messages_.push_back(value.at("summary").get<std::string>());
    if (key == "file") {
      files[value.at("path").get<std::string>()] = {.content =
                                                        decode_base64(value.at("content").get<std::string>()).value()};
    } else if (key == "lfsFile") {
      const auto stored = stored_.find(value.at("oid").get<std::string>());
      if (stored == stored_.end()) return http_answer("400 Bad Request", R"({"error": "an LFS file is not there"})");
      files[value.at("path").get<std::string>()] = {.content = stored->second, .is_lfs = true};
    }
  }
  const std::string id = next_commit();
  repo.branches[branch] = id;
  repo.commits[id] = std::move(files);
  return ok({{"commitOid", id}, {"commitUrl", endpoint() + "/Org/New/commit/" + id}, {"success", true}});
}

// The storage: /object/OID, /part/OID/N; and /complete/OID of the hub joins.
std::string SmallHub::store(const LoopbackRequest& request) {
  std::unique_lock lock(mutex_);
  storage_saw_token_ = storage_saw_token_ || !request.header("Authorization").empty();
  const std::string path = request.line.substr(request.line.find(' ') + 1);
  const std::string line = request.line.substr(0, request.line.find(' ')) + " storage" + path;
  requests_.push_back(line);
  lock.unlock();
  holds_uploads.wait(true);
  lock.lock();
  if (const auto fault = fault_for(line)) return *fault;
  if (path.starts_with("/verify/")) return ok(Json::object());
  if (path.starts_with("/object/")) {
    const std::string oid = path.substr(8);
    if (sha256_of(request.body) != oid) return http_answer("400 Bad Request", "BadDigest");
    stored_[oid] = request.body;
    return http_answer("200 OK", "");
  }
  const std::size_t slash = path.rfind('/');
  const std::string oid = path.substr(6, slash - 6);
  parts_[oid][std::stoll(path.substr(slash + 1))] = request.body;
  return http_answer("200 OK", "", "ETag: \"" + sha256_of(request.body).substr(0, 32) + "\"\r\n");
}

std::string SmallHub::complete(const std::string& oid, const std::string& body) {
  const Json request = parse_json(body, "complete");
  std::string whole;
  for (const Json& part : request.at("parts")) {
    const std::string& bytes = parts_[oid][part.at("partNumber").get<std::int64_t>()];
    const std::string etag = "\"" + sha256_of(bytes).substr(0, 32) + "\"";
    if (part.at("etag") != etag) return http_answer("400 Bad Request", R"({"error": "a part is another one"})");
    whole += bytes;
  }
  if (sha256_of(whole) != oid) return http_answer("400 Bad Request", R"({"error": "the parts are not the file"})");
  stored_[oid] = whole;
  return ok(Json::object());
}

std::int64_t SmallHub::cut_of(const LoopbackRequest&) {
  if (cut_upload_after < 0 || upload_cuts <= 0) return -1;
  if (uploads_before_cut > 0) {
    --uploads_before_cut;
    return -1;
  }
  --upload_cuts;
  return cut_upload_after;
}

void SmallHub::release_uploads() {
  holds_uploads = false;
  holds_uploads.notify_all();
}

bool SmallHub::storage_saw_token() {
  const std::scoped_lock lock(mutex_);
  return storage_saw_token_;
}

std::vector<std::string> SmallHub::bodies() {
  const std::scoped_lock lock(mutex_);
  return bodies_;
}

SmallHubFiles SmallHub::files(const std::string& repo, const std::string& branch) {
  const std::scoped_lock lock(mutex_);
  const auto place = repos_.find(repo);
  if (place == repos_.end() || !place->second.branches.contains(branch)) return {};
  return place->second.commits.at(place->second.branches.at(branch));
}

std::vector<std::string> SmallHub::branches(const std::string& repo) {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, commit] : repos_[repo].branches) names.push_back(name);
  return names;
}

std::optional<bool> SmallHub::is_private(const std::string& repo) {
  const std::scoped_lock lock(mutex_);
  return repos_[repo].is_private;
}

std::vector<std::string> SmallHub::messages() {
  const std::scoped_lock lock(mutex_);
  return messages_;
}

}  // namespace hone::test
