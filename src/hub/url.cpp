#include "hub/url.h"

#include <algorithm>
#include <cctype>
#include <new>
#include <utility>

#include "core/characters.h"
#include "core/error.h"
#include "hub/curl.h"

namespace hone {
namespace {

std::string in_lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), lower);
  return text;
}

// Returns a part of a URL; empty if the URL lacks it.
std::string part_of(CURLU* url, CURLUPart part) {
  const Curl& curl = Curl::get();
  char* text = nullptr;
  const CURLUcode code = curl.url_get(url, part, &text, 0);
  if (code == CURLUE_OUT_OF_MEMORY) throw std::bad_alloc();
  if (code != CURLUE_OK) return {};
  const std::unique_ptr<char, decltype(curl.free)> owner(text, curl.free);
  return text;
}

// Returns false if libcurl refuses the value.
bool set_part(CURLU* url, CURLUPart part, const std::string& value, unsigned flags = 0) {
  if (value.find('\0') != std::string::npos) return false;
  const CURLUcode code = Curl::get().url_set(url, part, value.c_str(), flags);
  if (code == CURLUE_OUT_OF_MEMORY) throw std::bad_alloc();
  return code == CURLUE_OK;
}

// Changes the host to lower case. Returns false if libcurl refuses it.
bool lower_host(CURLU* url) {
  const std::string host = part_of(url, CURLUPART_HOST);
  const std::string lowered = in_lower_case(host);
  if (lowered == host) return true;
  // Setting the host drops the zone of an IPv6 address.
  const std::string zone = part_of(url, CURLUPART_ZONEID);
  return set_part(url, CURLUPART_HOST, lowered) && (zone.empty() || set_part(url, CURLUPART_ZONEID, zone));
}

}  // namespace

Url::Url() : handle_(Curl::get().url(), Curl::get().url_cleanup) {
  if (!handle_) throw std::bad_alloc();
}

std::optional<Url> Url::parse(std::string_view text) {
  Url url;
  if (!set_part(url.handle_.get(), CURLUPART_URL, std::string(text), CURLU_NON_SUPPORT_SCHEME)) return std::nullopt;
  if (!lower_host(url.handle_.get())) return std::nullopt;
  return url;
}

bool Url::is_http() const {
  const std::string scheme = part_of(handle_.get(), CURLUPART_SCHEME);
  return scheme == "http" || scheme == "https";
}

std::string Url::origin() const {
  std::string host = part_of(handle_.get(), CURLUPART_HOST);
  // The zone of an IPv6 address: "[fe80::1%25eth0]".
  if (const std::string zone = part_of(handle_.get(), CURLUPART_ZONEID); !zone.empty())
    host.insert(host.size() - 1, "%25" + zone);
  const std::string port = part_of(handle_.get(), CURLUPART_PORT);
  return text_of(part_of(handle_.get(), CURLUPART_SCHEME), "://", host, port.empty() ? "" : ":", port);
}

std::string Url::host() const { return part_of(handle_.get(), CURLUPART_HOST); }

std::string Url::path() const {
  std::string path = part_of(handle_.get(), CURLUPART_PATH);
  while (path.ends_with('/')) path.pop_back();
  return path;
}

void Url::set_path(const std::string& path) {
  const bool is_set = set_part(handle_.get(), CURLUPART_PATH, path.empty() ? "/" : path);
  HONE_ASSERT(is_set, "libcurl refuses the path ", path);
}

std::string Url::text() const {
  std::string text = part_of(handle_.get(), CURLUPART_URL);
  const bool is_root = part_of(handle_.get(), CURLUPART_PATH) == "/" &&
                       part_of(handle_.get(), CURLUPART_QUERY).empty() &&
                       part_of(handle_.get(), CURLUPART_FRAGMENT).empty();
  if (is_root && text.ends_with('/')) text.pop_back();
  return text;
}

std::string origin_of(std::string_view url) {
  const std::optional<Url> parsed = Url::parse(url);
  return parsed ? parsed->origin() : std::string();
}

std::string url_escaped(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("-_.~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

}  // namespace hone
