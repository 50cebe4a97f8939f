#include "support/small_hub.h"

#include "core/digest.h"
#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"

namespace hone::test {
namespace {

std::string etag_of(const SmallHubFile& file) {
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

// What is asked for by HEAD has all but its body.
std::string answer_text(const std::string& status, const std::string& headers, const std::string& body, bool head) {
  std::string answer = http_answer(status, body, headers);
  if (head) answer.resize(answer.size() - body.size());
  return answer;
}

}  // namespace

std::vector<std::string> SmallHub::requests() {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

std::string SmallHub::listing(const std::string& repo) const {
  Json files = Json::array();
  for (const auto& [path, file] : repos_.at(repo)) {
    Json item = {{"rfilename", path}};
    if (lists_blobs) {
      item["size"] = file.content.size();
      item["blobId"] = file.is_lfs ? std::string(40, '0') : etag_of(file);
      if (file.is_lfs) item["lfs"] = {{"sha256", etag_of(file)}, {"size", file.content.size()}};
    }
    files.push_back(item);
  }
  return Json{{"sha", kSmallHubCommit}, {"siblings", files}}.dump();
}

std::string SmallHub::answer_of_file(const SmallHubFile& file, std::int64_t from, bool head) {
  std::string body = file.served.empty() ? file.content : file.served;
  const auto whole = static_cast<std::int64_t>(body.size());
  std::string headers = text_of("ETag: \"", file.is_lfs ? "storage" : etag_of(file), "\"\r\n");
  if (file.is_lfs) headers += text_of("X-Linked-ETag: \"", etag_of(file), "\"\r\nX-Linked-Size: ", whole, "\r\n");
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
  const bool head = line.starts_with("HEAD ");
  std::string path = line.substr(line.find(' ') + 1);
  path.resize(std::min(path.find('?'), path.size()));
  if (busy > 0) {
    --busy;
    return answer_text("503 Service Unavailable", "", "busy", head);
  }
  if (!needed_token.empty() && request.header("Authorization") != "Bearer " + needed_token) {
    return answer_text("401 Unauthorized", "X-Error-Code: RepoNotFound\r\n", "{}", head);
  }
  for (const auto& [repo, files] : repos_) {
    const bool is_refused = repo == gated;
    if (path.starts_with("/api/" + repo + "/revision/")) {
      if (is_refused) return answer_text("403 Forbidden", "X-Error-Code: GatedRepo\r\n", "{}", head);
      if (path.substr(repo.size() + 15) == "main") return answer_text("200 OK", "", listing(repo), head);
      return answer_text("404 Not Found", "X-Error-Code: RevisionNotFound\r\n", "{}", head);
    }
    const std::string prefix =
        text_of("/", repo.starts_with("models/") ? repo.substr(7) : repo, "/resolve/", kSmallHubCommit, "/");
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
  return answer_text("404 Not Found", "X-Error-Code: RepoNotFound\r\n", "{}", head);
}

}  // namespace hone::test
