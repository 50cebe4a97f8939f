// libcurl, and its handles, which keep connections open from one request to the next.
#pragma once

#include <curl/curl.h>

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// libcurl brings some twenty libraries: it is opened at the first request, and never closed.
class Curl {
 public:
  // Throws Error where it cannot be opened.
  static const Curl& get();

  decltype(&curl_easy_init) init;
  decltype(&curl_easy_reset) reset;
  decltype(&curl_easy_setopt) setopt;
  decltype(&curl_easy_perform) perform;
  decltype(&curl_easy_getinfo) getinfo;
  decltype(&curl_easy_cleanup) cleanup;
  decltype(&curl_easy_strerror) strerror;
  decltype(&curl_slist_append) append;
  decltype(&curl_slist_free_all) free_all;

 private:
  Curl();
  template <class Function>
  void load(Function& function, const char* name);

  void* library_;
};

// Handles with a connection that waits for the next request to its origin. Thread-safe. Never destroyed: at the exit
// nothing of libcurl is torn down, the system closes the sockets.
class IdleHandles {
 public:
  static IdleHandles& get();

  // The handle that was put there last; null where there is none.
  [[nodiscard]] CURL* take(const std::string& origin);
  // Takes over a handle; closes it where its connection has ended.
  void put(const std::string& origin, CURL* handle, bool failed);

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<CURL*>> handles_;
};

}  // namespace hone
