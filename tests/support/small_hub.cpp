#include "support/small_hub.h"

#include "core/digest.h"
#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"

namespace hone::test {

Variables SmallHub::variables(const std::filesystem::path& home, const std::optional<std::string>& token) const {
  Variables all = {{"HF_HOME", home.string()}, {"HF_ENDPOINT", endpoint()}, {"HF_TOKEN", token}};
  for (const char* name : {"HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_TOKEN_PATH", "HF_HUB_OFFLINE",
                           "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "http_proxy", "all_proxy", "ALL_PROXY"}) {
    all[name] = std::nullopt;
  }
  return all;
}

std::string small_hub_etag(const SmallHubFile& file) {
  if (file.is_lfs) {
    Sha256 sha;
    sha.update(file.content);
    return sha.finish();
  }
  Sha1 sha;
  sha.update("blob " + std::to_string(file.content.size()));
  sha.update(std::string_view("\0", 1));
  sha.update(file.content);
  return sha.finish();
}

namespace {

// An answer to HEAD has all but its body.
std::string answer_text(const std::string& status, const std::string& headers, const std::string& body, bool head) {
  std::string answer = http_answer(status, body, headers);
  if (head) answer.resize(answer.size() - body.size());
  return answer;
}

}  // namespace

void SmallHub::add(const std::string& repo, SmallHubFiles files) {
  const std::scoped_lock lock(mutex_);
  Repo& place = repos_[repo];
  place.branches["main"] = place.first = kSmallHubCommit;
  place.commits[kSmallHubCommit] = std::move(files);
}

void SmallHub::fail(const std::string& part, const std::string& status, int times, const std::string& body) {
  const std::scoped_lock lock(mutex_);
  faults_.push_back({part, status, body, times});
}

std::optional<std::string> SmallHub::fault_for(const std::string& line) {
  for (Fault& fault : faults_) {
    if (fault.times == 0 || line.find(fault.part) == std::string::npos) continue;
    --fault.times;
    return http_answer(fault.status, fault.body);
  }
  return std::nullopt;
}

void SmallHub::need_token(std::string token) {
  const std::scoped_lock lock(mutex_);
  needed_token_ = std::move(token);
}

std::vector<std::string> SmallHub::requests() {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

void SmallHub::forget_requests() {
  const std::scoped_lock lock(mutex_);
  requests_.clear();
  bodies_.clear();
}

std::string SmallHub::listing(const SmallHubFiles& repo_files, const std::string& commit) const {
  Json files = Json::array();
  for (const auto& [path, file] : repo_files) {
    Json item = {{"rfilename", path}};
    if (lists_blobs) {
      item["size"] = file.content.size();
      item["blobId"] = file.is_lfs ? std::string(40, '0') : small_hub_etag(file);
      if (file.is_lfs) item["lfs"] = {{"sha256", small_hub_etag(file)}, {"size", file.content.size()}};
    }
    files.push_back(item);
  }
  return Json{{"id", "Org/Name"}, {"sha", commit}, {"siblings", files}}.dump();
}

std::string SmallHub::answer_of_file(const SmallHubFile& file, std::int64_t from, bool head) {
  std::string body = file.served.empty() ? file.content : file.served;
  const auto whole = static_cast<std::int64_t>(body.size());
  std::string headers = text_of("ETag: \"", file.is_lfs ? "storage" : small_hub_etag(file), "\"\r\n");
  if (file.is_lfs)
    headers += text_of("X-Linked-ETag: \"", small_hub_etag(file), "\"\r\nX-Linked-Size: ", whole, "\r\n");
  std::string status = "200 OK";
  if (from > 0 && !ignores_ranges) {
    if (from >= whole) return answer_text("416 Range Not Satisfiable", "", "", head);
    body.erase(0, static_cast<std::size_t>(from));
    status = "206 Partial Content";
    headers += text_of("Content-Range: bytes ", from, "-", whole - 1, "/", whole, "\r\n");
  }
  const bool cut = !head && cut_after >= 0 && static_cast<std::int64_t>(body.size()) > cut_after && cuts > 0;
  if (!cut) return answer_text(status, headers, body, head);
  --cuts;
  std::string answer = answer_text(status, headers, body, head);
  answer.resize(answer.size() - body.size() + static_cast<std::size_t>(cut_after));
  return answer;
}

std::string SmallHub::answer(const LoopbackRequest& request) {
  const std::string range = request.header("Range");
  const std::string& line = request.line;
  const std::scoped_lock lock(mutex_);
  requests_.push_back(line + (range.empty() ? "" : " Range: " + range));
  bodies_.push_back(line + "\n" + request.body);
  const bool head = line.starts_with("HEAD ");
  std::string path = line.substr(line.find(' ') + 1);
  path.resize(std::min(path.find('?'), path.size()));
  if (busy > 0) {
    --busy;
    return answer_text("503 Service Unavailable", "", "busy", head);
  }
  const bool is_signed = path.starts_with("/complete/");  // its address is the permission
  if (!is_signed && !needed_token_.empty() && request.header("Authorization") != "Bearer " + needed_token_) {
    return answer_text("401 Unauthorized", "X-Error-Code: RepoNotFound\r\n", "{}", head);
  }
  if (const auto fault = fault_for(line)) return *fault;
  if (const auto uploaded = answer_upload(line.substr(0, line.find(' ')), path, request.body)) return *uploaded;
  for (const auto& [repo, place] : repos_) {
    const bool is_refused = repo == gated;
    if (path.starts_with("/api/" + repo + "/revision/")) {
      if (is_refused) return answer_text("403 Forbidden", "X-Error-Code: GatedRepo\r\n", "{}", head);
      std::string revision = path.substr(repo.size() + 15);
      if (const std::size_t slash = revision.find("%2F"); slash != std::string::npos) revision.replace(slash, 3, "/");
      const auto branch = place.branches.find(revision);
      if (branch != place.branches.end()) {
        return answer_text("200 OK", "", listing(place.commits.at(branch->second), branch->second), head);
      }
      return answer_text("404 Not Found", "X-Error-Code: RevisionNotFound\r\n", "{}", head);
    }
    for (const auto& [commit, files] : place.commits) {
      const std::string prefix =
          text_of("/", repo.starts_with("models/") ? repo.substr(7) : repo, "/resolve/", commit, "/");
      // Large files are sent on to storage, as the hub does.
      for (const bool stored : {false, true}) {
        const std::string start = stored ? "/storage" + prefix : prefix;
        if (!path.starts_with(start)) continue;
        const auto file = files.find(path.substr(start.size()));
        if (file == files.end()) break;
        if (file->second.is_lfs && !stored && !head) {
          return answer_text("302 Found", "Location: /storage" + path + "\r\n", "", head);
        }
        const std::int64_t from = range.empty() ? 0 : std::stoll(range.substr(range.find('=') + 1));
        return answer_of_file(file->second, from, head);
      }
    }
  }
  return answer_text("404 Not Found", "X-Error-Code: RepoNotFound\r\n", "{}", head);
}

}  // namespace hone::test
