#include "hub/curl.h"

#include <dlfcn.h>

#include "core/error.h"
#include "core/immortal.h"

namespace hone {

const Curl& Curl::get() {
  static const Curl curl;
  return curl;
}

Curl::Curl() : library_(dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr)
    throw Error("libcurl.so.4", "cannot be opened, and requests over HTTP need it", "apt install libcurl4");
  decltype(&curl_global_init) global_init;
  load(global_init, "curl_global_init");
  global_init(CURL_GLOBAL_DEFAULT);  // before any thread could initialize it concurrently
  load(init, "curl_easy_init");
  load(reset, "curl_easy_reset");
  load(setopt, "curl_easy_setopt");
  load(perform, "curl_easy_perform");
  load(getinfo, "curl_easy_getinfo");
  load(cleanup, "curl_easy_cleanup");
  load(strerror, "curl_easy_strerror");
  load(append, "curl_slist_append");
  load(free_all, "curl_slist_free_all");
  load(url, "curl_url");
  load(url_cleanup, "curl_url_cleanup");
  load(url_get, "curl_url_get");
  load(url_set, "curl_url_set");
  load(free, "curl_free");
}

template <class Function>
void Curl::load(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library_, name));
  if (function == nullptr) throw Error("libcurl.so.4", text_of("has no function ", name));
}

IdleHandles& IdleHandles::get() {
  static Immortal<IdleHandles> handles;
  return handles.get();
}

CURL* IdleHandles::take(const std::string& origin) {
  const std::scoped_lock lock(mutex_);
  std::vector<CURL*>& idle = handles_[origin];
  if (idle.empty()) return nullptr;
  CURL* handle = idle.back();
  idle.pop_back();
  return handle;
}

void IdleHandles::put(const std::string& origin, CURL* handle, bool failed) {
  const Curl& curl = Curl::get();
  curl_socket_t connection = CURL_SOCKET_BAD;
  if (!failed) curl.getinfo(handle, CURLINFO_ACTIVESOCKET, &connection);
  if (connection == CURL_SOCKET_BAD) return curl.cleanup(handle);
  curl.reset(handle);  // clears the options, keeps the connection
  const std::scoped_lock lock(mutex_);
  handles_[origin].push_back(handle);
}

}  // namespace hone
