// An HTTP server on loopback: what it answers is a test's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace hone::test {

struct LoopbackRequest {
  std::string line;     // "GET /path?query"
  std::string headers;  // each between two CRLF
  std::string body;

  [[nodiscard]] std::string header(const std::string& name) const;  // in any case; "": not there
};

// The bytes of an answer; `headers` are whole lines. The connection stays open for the next request, unless one of them
// is "Connection: close" or less than the whole answer is sent.
[[nodiscard]] std::string http_answer(const std::string& status, const std::string& body,
                                      const std::string& headers = "");

class Loopback {
 public:
  // `answer` gives the bytes to be sent; it is called by a thread of each connection.
  // `cut`: bytes of the request's body after which the connection is closed instead; -1: never. It sees no body.
  explicit Loopback(std::function<std::string(const LoopbackRequest&)> answer,
                    std::function<std::int64_t(const LoopbackRequest&)> cut = {});
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;
  ~Loopback();

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] int most_at_once() const { return most_; }        // requests received and not yet answered
  [[nodiscard]] int connections() const { return connections_; }  // taken so far

 private:
  void serve();
  bool serve(int connection);

  std::function<std::string(const LoopbackRequest&)> answer_;
  std::function<std::int64_t(const LoopbackRequest&)> cut_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stops_ = false;
  std::atomic<int> open_ = 0;
  std::atomic<int> most_ = 0;
  std::atomic<int> connections_ = 0;
  std::mutex mutex_;
  std::set<int> open_connections_;
  std::list<std::jthread> answering_;
  std::thread thread_;
};

}  // namespace hone::test
