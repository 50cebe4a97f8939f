#include "hub/http.h"

#include <curl/curl.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <exception>
#include <memory>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::size_t kLongestError = std::size_t{1} << 16;

// libcurl brings some twenty libraries: only who asks others over HTTP needs them.
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
      throw Error("libcurl.so.4", "cannot be opened, and requests over HTTP need it", "apt install libcurl4");
    decltype(&curl_global_init) global_init;
    load(global_init, "curl_global_init");
    global_init(CURL_GLOBAL_DEFAULT);  // before threads that would each begin it
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
  const Curl& curl;
  CURL* handle;
  std::int64_t most;  // bytes of the body; -1: any number
  std::function<void(const HttpAnswer&, std::string_view)> take;
  const std::atomic<bool>* cancelled;
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
  if (is_good && transfer.most >= 0 && transfer.received > transfer.most) {
    answer.is_too_long = true;
    answer.failure = text_of("it is longer than ", transfer.most, " bytes");
    return 0;
  }
  if (is_good && transfer.take) {
    try {
      transfer.take(answer, piece);
    } catch (...) {
      transfer.thrown = std::current_exception();
      return 0;
    }
  } else if (is_good || answer.body.size() < kLongestError) {
    answer.body += piece;
  }
  return piece.size();
}

// Where a body that is sent is read from.
struct BodySource {
  const HttpPut& request;
  std::int64_t offset = 0;
  std::exception_ptr thrown;  // by `read`
};

std::size_t on_source(char* data, std::size_t size, std::size_t count, void* context) {
  auto& source = *static_cast<BodySource*>(context);
  const std::int64_t left = source.request.size - source.offset;
  const auto most = static_cast<std::size_t>(std::min<std::int64_t>(left, static_cast<std::int64_t>(size * count)));
  if (most == 0) return 0;
  try {
    const std::size_t got = source.request.read(source.offset, std::span(data, most));
    source.offset += static_cast<std::int64_t>(got);
    return got;
  } catch (...) {
    source.thrown = std::current_exception();
    return CURL_READFUNC_ABORT;
  }
}

// libcurl begins anew where a connection that it had kept turns out to be closed.
int on_source_seek(void* context, curl_off_t offset, int origin) {
  if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<BodySource*>(context)->offset = offset;
  return CURL_SEEKFUNC_OK;
}

int on_progress(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& transfer = *static_cast<const Transfer*>(context);
  return interrupted() || (transfer.cancelled != nullptr && *transfer.cancelled) ? 1 : 0;
}

// A request with what all have in common.
class Exchange {
 public:
  Exchange(const std::string& url, const std::string& token)
      : handle_(curl_.init(), curl_.cleanup), headers_(nullptr, curl_.free_all) {
    if (handle_ == nullptr) throw Error("libcurl.so.4", "cannot begin a request");
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, 15L);
    add_header("User-Agent: hone");
    // libcurl keeps this header from other hosts.
    if (!token.empty()) add_header("Authorization: Bearer " + token);
  }

  void set(CURLoption option, auto value) { curl_.setopt(handle_.get(), option, value); }
  void add_header(const std::string& line) { headers_.reset(curl_.append(headers_.release(), line.c_str())); }

  HttpAnswer perform(std::int64_t most, const decltype(Transfer::take)& take, const std::atomic<bool>* cancelled) {
    Transfer transfer{.curl = curl_,
                      .handle = handle_.get(),
                      .most = most,
                      .take = take,
                      .cancelled = cancelled,
                      .answer = {},
                      .received = 0,
                      .thrown = {}};
    std::array<char, CURL_ERROR_SIZE> reason{};
    set(CURLOPT_HTTPHEADER, headers_.get());
    set(CURLOPT_ERRORBUFFER, reason.data());
    set(CURLOPT_HEADERFUNCTION, &on_header);
    set(CURLOPT_HEADERDATA, &transfer);
    set(CURLOPT_WRITEFUNCTION, &on_body);
    set(CURLOPT_WRITEDATA, &transfer);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &on_progress);
    set(CURLOPT_XFERINFODATA, &transfer);
    const CURLcode code = curl_.perform(handle_.get());
    curl_.getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &transfer.answer.status);
    if (transfer.thrown) std::rethrow_exception(transfer.thrown);
    if (code == CURLE_ABORTED_BY_CALLBACK) throw_if_interrupted();
    if (code != CURLE_OK && transfer.answer.failure.empty()) {
      transfer.answer.failure = reason[0] != '\0' ? reason.data() : curl_.strerror(code);
    }
    return std::move(transfer.answer);
  }

 private:
  const Curl& curl_ = Curl::get();
  std::unique_ptr<CURL, decltype(Curl::cleanup)> handle_;
  std::unique_ptr<curl_slist, decltype(Curl::free_all)> headers_;
};

}  // namespace

HttpAnswer http_get(const HttpRequest& request) {
  Exchange exchange(request.url, request.token);
  if (request.from > 0) exchange.add_header(text_of("Range: bytes=", request.from, "-"));
  exchange.set(CURLOPT_FOLLOWLOCATION, 1L);
  exchange.set(CURLOPT_MAXREDIRS, 10L);
  exchange.set(CURLOPT_NOBODY, request.head ? 1L : 0L);
  exchange.set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  exchange.set(CURLOPT_LOW_SPEED_TIME, 30L);
  return exchange.perform(request.most, request.take, nullptr);
}

HttpAnswer http_post(const HttpPost& request) {
  Exchange exchange(request.url, request.token);
  exchange.add_header("Content-Type: " + request.content_type);
  if (!request.accept.empty()) exchange.add_header("Accept: " + request.accept);
  exchange.add_header("Expect:");  // no round trip before a long body
  exchange.set(CURLOPT_POST, 1L);
  exchange.set(CURLOPT_POSTFIELDS, request.body.data());
  exchange.set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  exchange.set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()));
  return exchange.perform(request.most, {}, request.cancelled);
}

HttpAnswer http_put(const HttpPut& request) {
  Exchange exchange(request.url, "");
  for (const auto& [name, value] : request.headers) exchange.add_header(text_of(name, ": ", value));
  exchange.add_header("Expect:");
  BodySource source{.request = request, .offset = 0, .thrown = {}};
  exchange.set(CURLOPT_UPLOAD, 1L);
  exchange.set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.size));
  exchange.set(CURLOPT_READFUNCTION, &on_source);
  exchange.set(CURLOPT_READDATA, &source);
  exchange.set(CURLOPT_SEEKFUNCTION, &on_source_seek);
  exchange.set(CURLOPT_SEEKDATA, &source);
  exchange.set(CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
  exchange.set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  exchange.set(CURLOPT_LOW_SPEED_TIME, 120L);
  HttpAnswer answer = exchange.perform(-1, {}, nullptr);
  if (source.thrown) std::rethrow_exception(source.thrown);
  return answer;
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
