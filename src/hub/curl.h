// Loads libcurl and keeps its handles, which hold connections open between requests.
#pragma once

#include <curl/curl.h>

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// The functions of libcurl. The library depends on about twenty others, so it is loaded at the first request, and it is
// never unloaded.
class Curl {
 public:
  // Returns the loaded library. Throws Error if it cannot be loaded.
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
  decltype(&curl_url) url;
  decltype(&curl_url_cleanup) url_cleanup;
  decltype(&curl_url_get) url_get;
  decltype(&curl_url_set) url_set;
  decltype(&curl_free) free;

 private:
  Curl();
  template <class Function>
  void load(Function& function, const char* name);

  void* library_;
};

// Idle handles, each with a connection that can serve the next request to its origin. Thread-safe. Never destroyed: at
// exit libcurl is not shut down, and the kernel closes the sockets.
class IdleHandles {
 public:
  static IdleHandles& get();

  // Returns the most recently stored handle for the origin, or null.
  [[nodiscard]] CURL* take(const std::string& origin);
  // Stores a handle, or closes it if its connection has ended.
  void put(const std::string& origin, CURL* handle, bool failed);

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<CURL*>> handles_;
};

}  // namespace hone
