#include "hub/http.h"

#include <curl/curl.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <exception>
#include <memory>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::size_t kLongestError = std::size_t{1} << 16;

// libcurl brings some twenty libraries: only who downloads needs them.
class Curl {
 public:
  static const Curl& get() {
    static const Curl curl;
    return curl;
  }

  decltype(&curl_easy_init) init;
  decltype(&curl_easy_setopt) setopt;
  decltype(&curl_easy_perform) perform;
  decltype(&curl_easy_getinfo) getinfo;
  decltype(&curl_easy_cleanup) cleanup;
  decltype(&curl_easy_strerror) strerror;
  decltype(&curl_slist_append) append;
  decltype(&curl_slist_free_all) free_all;

 private:
  Curl() : library_(dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr)
      throw Error("libcurl.so.4", "cannot be opened, and downloads need it", "apt install libcurl4");
    load(init, "curl_easy_init");
    load(setopt, "curl_easy_setopt");
    load(perform, "curl_easy_perform");
    load(getinfo, "curl_easy_getinfo");
    load(cleanup, "curl_easy_cleanup");
    load(strerror, "curl_easy_strerror");
    load(append, "curl_slist_append");
    load(free_all, "curl_slist_free_all");
  }

  template <class Function>
  void load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) throw Error("libcurl.so.4", text_of("has no function ", name));
  }

  void* library_;
};

struct Transfer {
  const HttpRequest& request;
  const Curl& curl;
  CURL* handle;
  HttpAnswer answer;
  std::int64_t received = 0;
  std::exception_ptr thrown;  // by `take`
};

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* context) {
  const std::string_view line(data, size * count);
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    std::string name(trim(line.substr(0, colon)));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    static_cast<Transfer*>(context)->answer.headers.emplace(name, trim(line.substr(colon + 1)));
  }
  return size * count;
}

std::size_t on_body(char* data, std::size_t size, std::size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  const std::string_view piece(data, size * count);
  HttpAnswer& answer = transfer.answer;
  transfer.curl.getinfo(transfer.handle, CURLINFO_RESPONSE_CODE, &answer.status);
  const bool is_good = answer.status == 200 || answer.status == 206;
  transfer.received += static_cast<std::int64_t>(piece.size());
  if (is_good && transfer.request.most >= 0 && transfer.received > transfer.request.most) {
    answer.is_too_long = true;
    answer.failure = text_of("it is longer than ", transfer.request.most, " bytes");
    return 0;
  }
  if (is_good && transfer.request.take) {
    try {
      transfer.request.take(answer, piece);
    } catch (...) {
      transfer.thrown = std::current_exception();
      return 0;
    }
  } else if (is_good || answer.body.size() < kLongestError) {
    answer.body += piece;
  }
  return piece.size();
}

int on_progress(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) { return interrupted() ? 1 : 0; }

}  // namespace

HttpAnswer http_get(const HttpRequest& request) {
  const Curl& curl = Curl::get();
  const std::unique_ptr<CURL, decltype(curl.cleanup)> handle(curl.init(), curl.cleanup);
  if (handle == nullptr) throw Error("libcurl.so.4", "cannot begin a request");
  Transfer transfer{
      .request = request, .curl = curl, .handle = handle.get(), .answer = {}, .received = 0, .thrown = {}};
  std::unique_ptr<curl_slist, decltype(curl.free_all)> headers(nullptr, curl.free_all);
  const auto add_header = [&](const std::string& line) { headers.reset(curl.append(headers.release(), line.c_str())); };
  add_header("User-Agent: hone");
  // libcurl keeps this header from other hosts.
  if (!request.token.empty()) add_header("Authorization: Bearer " + request.token);
  if (request.from > 0) add_header(text_of("Range: bytes=", request.from, "-"));

  const auto set = [&](CURLoption option, auto value) { curl.setopt(handle.get(), option, value); };
  std::array<char, CURL_ERROR_SIZE> reason{};
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, 10L);
  set(CURLOPT_NOBODY, request.head ? 1L : 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, 15L);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, 30L);
  set(CURLOPT_ERRORBUFFER, reason.data());
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &on_progress);
  const CURLcode code = curl.perform(handle.get());
  curl.getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &transfer.answer.status);
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  if (code == CURLE_ABORTED_BY_CALLBACK) throw_if_interrupted();
  if (code != CURLE_OK && transfer.answer.failure.empty()) {
    transfer.answer.failure = reason[0] != '\0' ? reason.data() : curl.strerror(code);
  }
  return std::move(transfer.answer);
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
