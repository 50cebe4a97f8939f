// A hub on loopback: repositories in memory, with the faults that a test asks for.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "support/loopback.h"

namespace hone::test {

struct SmallHubFile {
  std::string content;
  bool is_lfs = false;
  std::string served;  // what is sent in place of the content; empty: the content
};

class SmallHub {
 public:
  [[nodiscard]] std::string endpoint() const { return server_.url(); }
  // "models/Org/Name" or "datasets/Org/Name", at the revision main.
  void add(const std::string& repo, std::map<std::string, SmallHubFile> files) {
    const std::scoped_lock lock(mutex_);
    repos_[repo] = std::move(files);
  }

  // What is to go wrong; set before requests.
  std::int64_t cut_after = -1;  // bytes of a body after which the connection is closed ...
  std::atomic<int> cuts = 0;    // ... so many times
  bool ignores_ranges = false;  // answers 200 to a request for a part
  bool lists_blobs = true;      // the listing names sizes and checksums
  std::atomic<int> busy = 0;    // answers 503 so many times
  std::string needed_token;     // 401 without it
  std::string gated;            // a repository that is refused with 403

  // "GET /path [Range: bytes=n-]", in order.
  [[nodiscard]] std::vector<std::string> requests();

 private:
  [[nodiscard]] std::string answer(const LoopbackRequest& request);
  [[nodiscard]] std::string answer_of_file(const SmallHubFile& file, std::int64_t from, bool head);
  [[nodiscard]] std::string listing(const std::string& repo) const;

  std::map<std::string, std::map<std::string, SmallHubFile>> repos_;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  Loopback server_{[this](const LoopbackRequest& request) { return answer(request); }};
};

inline constexpr const char* kSmallHubCommit = "0123456789abcdef0123456789abcdef01234567";

}  // namespace hone::test
