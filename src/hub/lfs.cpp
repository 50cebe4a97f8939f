#include "hub/lfs.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/yaml.h"
#include "hub/url.h"

namespace hone {
namespace {

constexpr std::size_t kMostObjects = 256;  // per request
constexpr const char* kLfsJson = "application/vnd.git-lfs+json";
constexpr std::string_view kPublicHub = "https://huggingface.co/";

// Replaces the public hub's address by the endpoint: a mirror may pass on addresses of the hub that it mirrors.
std::string at_endpoint(const std::string& url) {
  if (!url.starts_with(kPublicHub)) return url;
  return text_of(hub_endpoint(), "/", url.substr(kPublicHub.size()));
}

bool has_control(std::string_view text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < 32 || c == 127; });
}

struct LfsAction {
  std::string url;
  std::map<std::string, std::string> header;
};

std::optional<LfsAction> action_of(const Json& object, const char* name, const std::string& where) {
  const auto actions = object.find("actions");
  if (actions == object.end() || !actions->is_object() || !actions->contains(name)) return std::nullopt;
  const Json& given = (*actions)[name];
  LfsAction action;
  if (given.is_object() && given.contains("href") && given["href"].is_string()) {
    action.url = at_endpoint(given["href"].get<std::string>());
  }
  if (origin_of(action.url).empty()) throw Error(where, text_of("the hub gives no URL to ", name, " it"));
  const auto header = given.find("header");
  if (header == given.end() || !header->is_object()) return action;
  for (const auto& [key, value] : header->items()) {
    if (value.is_number_integer()) action.header[key] = std::to_string(value.get<std::int64_t>());
    if (value.is_string()) action.header[key] = value.get<std::string>();
    if (has_control(key) || has_control(action.header[key])) throw Error(where, "the hub gives an invalid header");
  }
  return action;
}

// Returns true if the storage no longer accepts an upload URL, which is valid for a limited time.
bool has_expired(const HubRefusal& refusal) { return refusal.status() == 400 || refusal.status() == 403; }

class LfsUpload {
 public:
  LfsUpload(const HubApi& api, const HubRepo& repo, TransferBar& bar) : api_(api), repo_(repo), bar_(bar) {}

  std::int64_t run(std::span<const UploadFile> files) {
    std::map<std::string, const UploadFile*> by_oid;
    for (const UploadFile& file : files) by_oid.emplace(file.sha256(), &file);
    std::vector<const UploadFile*> waiting;
    waiting.reserve(by_oid.size());
    for (const auto& [oid, file] : by_oid) waiting.push_back(file);
    for (std::size_t at = 0; at < waiting.size(); at += kMostObjects) {
      const auto chunk = std::span(waiting).subspan(at, std::min(kMostObjects, waiting.size() - at));
      const Json answer = ask(chunk);
      for (const Json& object : answer) {
        const auto found = object.is_object() && object.contains("oid") && object["oid"].is_string()
                               ? by_oid.find(object["oid"].get<std::string>())
                               : by_oid.end();
        if (found == by_oid.end()) throw Error(repo_.name, "the hub's answer lists a file that was not requested");
        store_patiently(*found->second, object);
      }
    }
    return sent_;
  }

 private:
  [[nodiscard]] std::string place(const UploadFile& file) const { return text_of(shown(repo_.name), " ", file.path()); }

  // Asks the hub which objects must be uploaded, and where.
  [[nodiscard]] Json ask(std::span<const UploadFile* const> files) const {
    Json objects = Json::array();
    for (const UploadFile* file : files) objects.push_back({{"oid", file->sha256()}, {"size", file->size()}});
    const Json request{{"operation", "upload"},
                       {"transfers", {"basic", "multipart"}},
                       {"objects", objects},
                       {"hash_algo", "sha256"},
                       {"ref", {{"name", repo_.revision}}}};
    const std::string prefix = repo_.kind == RepoKind::kModel ? "/" : "/datasets/";
    const Json answer = api_.json({.url = text_of(hub_endpoint(), prefix, repo_.name, ".git/info/lfs/objects/batch"),
                                   .body = request.dump(),
                                   .action = "store large files",
                                   .where = shown(repo_.name),
                                   .content_type = kLfsJson,
                                   .accept = kLfsJson});
    const auto listed = answer.find("objects");
    if (listed == answer.end() || !listed->is_array()) {
      throw Error(shown(repo_.name), "the hub's answer about large files lists none");
    }
    return *listed;
  }

  // Uploads an object. If the upload URLs have expired, requests new ones and retries once.
  void store_patiently(const UploadFile& file, const Json& object) {
    const std::int64_t before = sent_;
    try {
      store(file, object);
    } catch (const HubRefusal& refusal) {
      if (!has_expired(refusal)) throw;
      log_info(text_of(place(file), ": the storage answers ", refusal.status(),
                       "; requesting new upload URLs from the hub"));
      sent_ = before;
      const UploadFile* const one = &file;
      const Json again = ask(std::span(&one, 1));
      if (again.size() != 1) throw;
      store(file, again[0]);
    }
  }

  void store(const UploadFile& file, const Json& object) {
    if (const auto error = object.find("error"); error != object.end()) {
      const bool says = error->is_object() && error->contains("message") && (*error)["message"].is_string();
      throw Error(place(file), text_of("the hub does not accept it",
                                       says ? ": " + (*error)["message"].get<std::string>() : std::string()));
    }
    const std::optional<LfsAction> upload = action_of(object, "upload", place(file));
    if (!upload) {  // the hub already has it
      bar_.add(file.size());
      return;
    }
    if (upload->header.contains("chunk_size")) {
      store_parts(file, *upload);
    } else {
      (void)put(file, upload->url, upload->header, 0, file.size());
    }
    if (const std::optional<LfsAction> verify = action_of(object, "verify", place(file))) {
      (void)api_.call({.url = verify->url,
                       .body = Json{{"oid", file.sha256()}, {"size", file.size()}}.dump(),
                       .action = "confirm a large file",
                       .where = place(file),
                       .accept = kLfsJson});
    }
  }

  void store_parts(const UploadFile& file, const LfsAction& upload) {
    std::int64_t chunk = 0;
    const std::string& text = upload.header.at("chunk_size");
    std::from_chars(text.data(), text.data() + text.size(), chunk);
    std::map<std::int64_t, std::string> urls;  // part number, from 1 -> URL
    for (const auto& [key, value] : upload.header) {
      std::int64_t number = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
      if (error == std::errc() && end == key.data() + key.size()) urls[number] = value;
    }
    const std::int64_t count = chunk > 0 ? (file.size() + chunk - 1) / chunk : -1;
    if (std::ssize(urls) != count || urls.begin()->first != 1 || urls.rbegin()->first != count) {
      throw Error(place(file), text_of("the hub gives URLs for ", urls.size(), " parts of ", shown(text), " bytes for ",
                                       file.size(), " bytes"));
    }
    Json parts = Json::array();
    for (const auto& [number, url] : urls) {
      const std::int64_t from = (number - 1) * chunk;
      const std::string etag = put(file, url, {}, from, std::min(chunk, file.size() - from));
      if (etag.empty()) throw Error(place(file), text_of("the storage returned no etag for part ", number));
      parts.push_back({{"partNumber", number}, {"etag", etag}});
    }
    (void)api_.call({.url = upload.url,
                     .body = Json{{"oid", file.sha256()}, {"parts", parts}}.dump(),
                     .action = "join the parts of a large file",
                     .where = place(file),
                     .content_type = kLfsJson,
                     .accept = kLfsJson,
                     .is_public = true});
  }

  // Uploads a part of a file and returns its etag.
  std::string put(const UploadFile& file, const std::string& url, const std::map<std::string, std::string>& headers,
                  std::int64_t from, std::int64_t size) {
    std::int64_t furthest = 0;
    const HttpPut request{
        .url = url, .headers = headers, .size = size, .read = [&](std::int64_t offset, std::span<char> buffer) {
          file.read(from + offset, buffer);
          const std::int64_t end = offset + std::ssize(buffer);
          if (end > furthest) bar_.add(end - furthest);
          furthest = std::max(furthest, end);
          return buffer.size();
        }};
    for (int tries = 1;; ++tries) {
      const HttpAnswer answer = http_put(request);
      if (is_good(answer)) {
        sent_ += size;
        const auto etag = answer.headers.find("etag");
        return etag == answer.headers.end() ? "" : etag->second;
      }
      if (!is_retryable(answer) || tries >= api_.patience().tries) {
        api_.fail({.url = url, .body = {}, .action = "store its content", .where = place(file)}, answer, tries);
      }
      log_info(text_of(place(file), ": ",
                       answer.failure.empty() ? text_of("the storage answers ", answer.status) : answer.failure,
                       "; sending ", format_bytes(static_cast<std::uint64_t>(size)), " from ",
                       format_bytes(static_cast<std::uint64_t>(from)), " again"));
      pause_before_retry(tries - 1, api_.patience().first_pause);
    }
  }

  const HubApi& api_;
  const HubRepo& repo_;
  TransferBar& bar_;
  std::int64_t sent_ = 0;
};

}  // namespace

std::int64_t upload_objects(const HubApi& api, const HubRepo& repo, std::span<const UploadFile> files,
                            TransferBar& bar) {
  return LfsUpload(api, repo, bar).run(files);
}

}  // namespace hone
