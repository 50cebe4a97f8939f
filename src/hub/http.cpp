#include "hub/http.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/strings.h"
#include "hub/connection_gate.h"
#include "hub/curl.h"
#include "hub/url.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestError = std::size_t{1} << 16;
constexpr long kConnectSeconds = 15;
constexpr std::chrono::seconds kSilence{3};  // time without a connection after which a notice is logged

ConnectionGate& connection_gate() {
  // Threads may outlive static objects.
  static ConnectionGate* const gate = std::make_unique<ConnectionGate>().release();
  return *gate;
}

// The opening of a connection, from the permission of the gate to the start of its first answer.
class Opening {
 public:
  explicit Opening(const std::function<bool()>& is_over) : counted_(connection_gate().enter(is_over)) {}
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;
  ~Opening() {
    if (counted_) connection_gate().answered();
  }

 private:
  bool counted_;
};

// Logs that a server does not accept connections; with many requests, one line from time to time.
void log_no_connection(const std::string& origin) {
  static std::mutex mutex;
  static Clock::time_point said;
  const std::scoped_lock lock(mutex);
  if (said != Clock::time_point{} && Clock::now() < said + kSilence) return;
  said = Clock::now();
  log_warning(
      text_of(origin, ": no connection after ", kSilence.count(), " s; waiting for it up to ", kConnectSeconds, " s"));
}

struct Transfer {
  const Curl& curl;
  CURL* handle;
  std::int64_t most;  // upper limit of the body in bytes; -1: none
  std::function<void(const HttpAnswer&, std::string_view)> take;
  const std::atomic<bool>* cancelled;
  HttpAnswer answer;
  std::int64_t received = 0;
  std::exception_ptr thrown;  // exception from `take`
  std::string connecting_to;  // origin of a new connection until it is established
  Clock::time_point start = Clock::now();
  std::optional<Opening> opening;

  [[nodiscard]] bool is_over() const { return interrupted() || (cancelled != nullptr && *cancelled); }
};

// Acknowledges received data immediately (TCP_QUICKACK). A server that sends headers and body separately may wait for
// the acknowledgement (Nagle's algorithm), which the kernel delays by 40 ms on a reused connection.
void acknowledge(const Transfer& transfer) {
  curl_socket_t connection = CURL_SOCKET_BAD;
  const int yes = 1;
  transfer.curl.getinfo(transfer.handle, CURLINFO_ACTIVESOCKET, &connection);
  if (connection != CURL_SOCKET_BAD) (void)::setsockopt(connection, IPPROTO_TCP, TCP_QUICKACK, &yes, sizeof yes);
}

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  if (transfer.answer.headers.empty()) acknowledge(transfer);
  transfer.opening.reset();
  const std::string_view line(data, size * count);
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    std::string name(trim(line.substr(0, colon)));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    transfer.answer.headers.emplace(name, trim(line.substr(colon + 1)));
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

// Source of the body that is sent.
struct BodySource {
  const HttpPut& request;
  std::int64_t offset = 0;
  std::exception_ptr thrown;  // exception from `read`
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

// Restarts the body. libcurl sends it again if a reused connection turns out to be closed.
int on_source_seek(void* context, curl_off_t offset, int origin) {
  if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<BodySource*>(context)->offset = offset;
  return CURL_SEEKFUNC_OK;
}

int on_progress(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Transfer*>(context);
  if (!transfer.connecting_to.empty() && Clock::now() >= transfer.start + kSilence) {
    curl_off_t microseconds = 0;
    transfer.curl.getinfo(transfer.handle, CURLINFO_CONNECT_TIME_T, &microseconds);
    if (microseconds == 0) log_no_connection(transfer.connecting_to);
    transfer.connecting_to.clear();
  }
  return transfer.is_over() ? 1 : 0;
}

// Opens a socket that child processes do not inherit.
curl_socket_t open_socket(void*, curlsocktype, curl_sockaddr* address) {
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

// A request with the options that all requests share. Its handle and connection are reused by later requests.
class Exchange {
 public:
  Exchange(const std::string& url, const std::string& token)
      : origin_(origin_of(url)), handle_(IdleHandles::get().take(origin_)), headers_(nullptr, curl_.free_all) {
    is_new_ = handle_ == nullptr;
    if (is_new_) handle_ = curl_.init();
    if (handle_ == nullptr) throw Error("libcurl.so.4", "cannot create a request");
    set(CURLOPT_URL, url.c_str());
    // Authorities to trust instead of the system's, such as that of a server on this host. curl reads the same
    // variable.
    if (const char* file = std::getenv("SSL_CERT_FILE"); file != nullptr && *file != '\0') set(CURLOPT_CAINFO, file);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_TCP_KEEPALIVE, 1L);  // an answer may take minutes
    set(CURLOPT_OPENSOCKETFUNCTION, &open_socket);
    add_header("User-Agent: hone");
    // libcurl does not send this header to other hosts.
    if (!token.empty()) add_header("Authorization: Bearer " + token);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() { IdleHandles::get().put(origin_, handle_, failed_); }

  void set(CURLoption option, auto value) { curl_.setopt(handle_, option, value); }
  void add_header(const std::string& line) { headers_.reset(curl_.append(headers_.release(), line.c_str())); }

  HttpAnswer perform(std::int64_t most, const decltype(Transfer::take)& take, const std::atomic<bool>* cancelled) {
    Transfer transfer{.curl = curl_,
                      .handle = handle_,
                      .most = most,
                      .take = take,
                      .cancelled = cancelled,
                      .answer = {},
                      .received = 0,
                      .thrown = {},
                      .connecting_to = is_new_ ? origin_ : "",
                      .opening = {}};
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
    if (is_new_) transfer.opening.emplace([&] { return transfer.is_over(); });
    transfer.start = Clock::now();
    const CURLcode code = curl_.perform(handle_);
    failed_ = code != CURLE_OK;
    curl_.getinfo(handle_, CURLINFO_RESPONSE_CODE, &transfer.answer.status);
    if (transfer.thrown) std::rethrow_exception(transfer.thrown);
    if (code == CURLE_ABORTED_BY_CALLBACK) throw_if_interrupted();
    if (code != CURLE_OK && transfer.answer.failure.empty()) {
      transfer.answer.failure = reason[0] != '\0' ? reason.data() : curl_.strerror(code);
    }
    return std::move(transfer.answer);
  }

 private:
  const Curl& curl_ = Curl::get();
  std::string origin_;
  CURL* handle_;  // its options refer to this object until put() resets them
  bool is_new_ = false;
  bool failed_ = true;
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
  exchange.add_header("Expect:");  // send long bodies without an extra round trip
  exchange.set(CURLOPT_POST, 1L);
  exchange.set(CURLOPT_POSTFIELDS, request.body.data());
  exchange.set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  exchange.set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()));
  return exchange.perform(request.most, request.take, request.cancelled);
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

}  // namespace hone
