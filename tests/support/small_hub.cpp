#include "support/small_hub.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "core/digest.h"
#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"

namespace hone::test {
namespace {

void send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

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

std::string header_of(const std::string& request, const std::string& name) {
  const std::size_t at = request.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + name.size() + 4;
  return request.substr(begin, request.find("\r\n", begin) - begin);
}

}  // namespace

SmallHub::SmallHub() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 16) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("cannot listen on loopback");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

SmallHub::~SmallHub() {
  stops_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  thread_.join();
  ::close(listener_);
}

std::vector<std::string> SmallHub::requests() {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

void SmallHub::serve() {
  while (!stops_) {
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    answer(connection);
    ::close(connection);
  }
}

void SmallHub::send_text(int connection, const std::string& status, const std::string& headers, const std::string& body,
                         bool head) {
  send_all(connection, text_of("HTTP/1.1 ", status, "\r\nConnection: close\r\nContent-Length: ", body.size(), "\r\n",
                               headers, "\r\n", head ? "" : body));
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

void SmallHub::send_file(int connection, const SmallHubFile& file, std::int64_t from, bool head) {
  std::string body = file.served.empty() ? file.content : file.served;
  const auto whole = static_cast<std::int64_t>(body.size());
  std::string headers = text_of("ETag: \"", file.is_lfs ? "storage" : etag_of(file), "\"\r\n");
  if (file.is_lfs) headers += text_of("X-Linked-ETag: \"", etag_of(file), "\"\r\nX-Linked-Size: ", whole, "\r\n");
  std::string status = "200 OK";
  if (from > 0 && !ignores_ranges) {
    if (from >= whole) return send_text(connection, "416 Range Not Satisfiable", "", "", head);
    body.erase(0, static_cast<std::size_t>(from));
    status = "206 Partial Content";
    headers += text_of("Content-Range: bytes ", from, "-", whole - 1, "/", whole, "\r\n");
  }
  const bool cut = !head && cut_after >= 0 && static_cast<std::int64_t>(body.size()) > cut_after && cuts > 0;
  if (!cut) return send_text(connection, status, headers, body, head);
  --cuts;
  send_all(connection, text_of("HTTP/1.1 ", status, "\r\nContent-Length: ", body.size(), "\r\n", headers, "\r\n",
                               body.substr(0, static_cast<std::size_t>(cut_after))));
}

void SmallHub::answer(int connection) {
  std::string request;
  std::string buffer(4096, '\0');
  while (request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t size = ::recv(connection, buffer.data(), buffer.size(), 0);
    if (size <= 0) return;
    request.append(buffer, 0, static_cast<std::size_t>(size));
  }
  const std::string range = header_of(request, "Range");
  const std::string line = request.substr(0, request.find(" HTTP/"));
  {
    const std::scoped_lock lock(mutex_);
    requests_.push_back(line + (range.empty() ? "" : " Range: " + range));
  }
  const bool head = line.starts_with("HEAD ");
  std::string path = line.substr(line.find(' ') + 1);
  path.resize(std::min(path.find('?'), path.size()));
  if (busy > 0) {
    --busy;
    return send_text(connection, "503 Service Unavailable", "", "busy", head);
  }
  if (!needed_token.empty() && header_of(request, "Authorization") != "Bearer " + needed_token) {
    return send_text(connection, "401 Unauthorized", "X-Error-Code: RepoNotFound\r\n", "{}", head);
  }
  for (const auto& [repo, files] : repos_) {
    const bool is_refused = repo == gated;
    if (path.starts_with("/api/" + repo + "/revision/")) {
      if (is_refused) return send_text(connection, "403 Forbidden", "X-Error-Code: GatedRepo\r\n", "{}", head);
      if (path.substr(repo.size() + 15) == "main") return send_text(connection, "200 OK", "", listing(repo), head);
      return send_text(connection, "404 Not Found", "X-Error-Code: RevisionNotFound\r\n", "{}", head);
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
        return send_text(connection, "302 Found", "Location: /storage" + path + "\r\n", "", head);
      }
      const std::int64_t from = range.empty() ? 0 : std::stoll(range.substr(range.find('=') + 1));
      return send_file(connection, file->second, from, head);
    }
  }
  send_text(connection, "404 Not Found", "X-Error-Code: RepoNotFound\r\n", "{}", head);
}

}  // namespace hone::test
