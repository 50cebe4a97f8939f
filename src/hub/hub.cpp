#include "hub/hub.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "core/yaml.h"
#include "hub/http.h"
#include "hub/refusal.h"
#include "hub/url.h"

namespace hone {
namespace {

constexpr std::int64_t kLongestListing = std::int64_t{256} << 20;

std::string kind_path(RepoKind kind) { return kind == RepoKind::kModel ? "models" : "datasets"; }

// Returns true if the path stays within the snapshot's folder.
bool is_safe_path(std::string_view path) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; };
  if (path.empty() || path.size() > 1024 || path.find('\\') != std::string_view::npos) return false;
  return std::ranges::none_of(path, is_control) && std::ranges::none_of(split(path, '/'), [](const std::string& part) {
           return part.empty() || part == "." || part == "..";
         });
}

bool is_hexadecimal(std::string_view text) {
  return !text.empty() && text.size() <= 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

HubFile file_of(const Json& item, const std::string& where) {
  HubFile file{.path = text_at(item, "rfilename"), .size = -1, .etag = {}};
  if (!is_safe_path(file.path)) throw Error(where, text_of("the hub lists an invalid path: ", shown(file.path)));
  const auto lfs = item.find("lfs");
  const bool is_lfs = lfs != item.end() && lfs->is_object();
  const Json& source = is_lfs ? *lfs : item;
  file.etag = is_lfs ? text_at(*lfs, "sha256") : text_at(item, "blobId");
  if (!is_hexadecimal(file.etag)) file.etag.clear();
  const auto size = source.find("size");
  if (size != source.end() && size->is_number_integer()) file.size = size->get<std::int64_t>();
  return file;
}

HubListing listing_of(const std::string& body, const std::string& where) {
  const Json answer = parse_json(body, text_of("the hub's answer about ", where));
  HubListing listing{.commit = answer.is_object() ? text_at(answer, "sha") : "", .files = {}};
  const auto files = answer.is_object() ? answer.find("siblings") : answer.end();
  if (!is_hexadecimal(listing.commit) || files == answer.end() || !files->is_array()) {
    throw Error(where, "the hub's answer lacks a commit or a list of files",
                text_of("check HF_ENDPOINT, which is ", hub_endpoint()));
  }
  for (const Json& item : *files) {
    if (item.is_object()) listing.files.push_back(file_of(item, where));
  }
  std::ranges::sort(listing.files, {}, &HubFile::path);
  return listing;
}

}  // namespace

HubListing list_repo(const HubRepo& repo) {
  check_revision(repo);
  if (is_offline()) throw Error(shown(repo.name), "is not in the cache, and HF_HUB_OFFLINE forbids downloads");
  std::string revision = url_escaped(repo.revision);
  for (std::size_t at = 0; (at = revision.find('/', at)) != std::string::npos;) revision.replace(at, 1, "%2F");
  const HttpRequest request{.url = text_of(hub_endpoint(), "/api/", kind_path(repo.kind), "/", repo.name, "/revision/",
                                           revision, "?blobs=true"),
                            .token = hub_token(),
                            .most = kLongestListing,
                            .take = {}};
  const HttpAnswer answer = http_get(request);
  if (answer.status != 200 || !answer.failure.empty()) fail_refused(repo, "", answer);
  return listing_of(answer.body, shown(repo.name));
}

}  // namespace hone
