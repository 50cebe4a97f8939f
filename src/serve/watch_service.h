// The endpoints of `hone watch`: the page of runs and their files, without a model.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "http/message.h"

namespace hone {

struct WatchOptions {
  std::string version;
  std::filesystem::path runs;
  // Answer only requests whose Host is an IP address or localhost, so that no web page reaches a server on this host by
  // a name that it makes resolve to 127.0.0.1.
  bool local_hosts_only = true;
};

class WatchService {
 public:
  explicit WatchService(WatchOptions options) : options_(std::move(options)) {}

  // Answers a request. Never throws. Thread-safe.
  void handle(const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) const;

 private:
  [[nodiscard]] ServerResponse answer(const ServerRequest& request) const;

  WatchOptions options_;
};

}  // namespace hone
