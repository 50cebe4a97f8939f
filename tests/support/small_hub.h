// A Hugging Face hub on loopback: repositories in memory, with the faults that a test sets.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "support/environment.h"
#include "support/loopback.h"

namespace hone::test {

struct SmallHubFile {
  std::string content;
  bool is_lfs = false;
  std::string served;  // sent instead of the content; empty: the content
};
using SmallHubFiles = std::map<std::string, SmallHubFile>;

inline constexpr const char* kSmallHubCommit = "0123456789abcdef0123456789abcdef01234567";

class SmallHub {
 public:
  [[nodiscard]] std::string endpoint() const { return server_.url(); }
  // Environment variables that select this hub without a proxy, with the caches below `home`; settings of the user are
  // unset.
  [[nodiscard]] Variables variables(const std::filesystem::path& home,
                                    const std::optional<std::string>& token = std::nullopt) const;
  // "models/Org/Name" or "datasets/Org/Name", at the revision main.
  void add(const std::string& repo, SmallHubFiles files);

  // Faults.
  std::atomic<std::int64_t> cut_after = -1;  // bytes of a body after which the connection is closed ...
  std::atomic<int> cuts = 0;                 // ... so many times
  std::atomic<bool> ignores_ranges = false;  // answers 200 to a request for a part
  std::atomic<bool> lists_blobs = true;      // the listing names sizes and checksums
  std::atomic<int> busy = 0;                 // answers 503 so many times
  std::string gated;                         // a repository that is refused with 403

  // Uploads.
  std::string user = "someone";                  // owner of the token
  std::string role = "write";                    // role of the token
  std::atomic<std::size_t> large_from = 4096;    // bytes from which a file is large
  std::atomic<std::size_t> chunk_size = 0;       // size of the parts of large files; 0: one part
  std::atomic<bool> verifies_elsewhere = false;  // large files are verified with the storage
  std::atomic<bool> names_checksums = false;     // preupload names the files that the branch has
  std::atomic<std::int64_t> cut_upload_after =
      -1;                                   // bytes of a body on its way to the storage at which it hangs up ...
  std::atomic<int> upload_cuts = 0;         // ... so many times
  std::atomic<int> uploads_before_cut = 0;  // after so many that arrive
  std::atomic<bool> holds_uploads = false;  // the storage answers when it becomes false: release_uploads()
  void release_uploads();
  // Answers requests whose line contains `part` with `status` ("403 Forbidden"), `times` times.
  void fail(const std::string& part, const std::string& status, int times, const std::string& body = "{}");

  // Requests with another token or none get a 401 from now on.
  void need_token(std::string token);

  // Requests in order: "GET /path [Range: bytes=n-]"; those to the storage as "PUT storage/path".
  [[nodiscard]] std::vector<std::string> requests();
  void forget_requests();
  // Returns true if the storage, which is another host, has ever received an Authorization header.
  [[nodiscard]] bool storage_saw_token();
  // "POST /path", a line break and the body of each request, except those to the storage.
  [[nodiscard]] std::vector<std::string> bodies();

  // Files that were pushed; empty if there is no such repository or branch.
  [[nodiscard]] SmallHubFiles files(const std::string& repo, const std::string& branch = "main");
  [[nodiscard]] std::vector<std::string> branches(const std::string& repo);
  [[nodiscard]] std::optional<bool> is_private(const std::string& repo);
  [[nodiscard]] std::vector<std::string> messages();  // of commits

 private:
  struct Repo {
    std::map<std::string, std::string> branches;  // name -> commit
    std::map<std::string, SmallHubFiles> commits;
    std::string first;
    std::optional<bool> is_private;
  };
  struct Fault {
    std::string part, status, body;
    int times;
  };

  [[nodiscard]] std::string answer(const LoopbackRequest& request);
  [[nodiscard]] std::string answer_of_file(const SmallHubFile& file, std::int64_t from, bool head);
  [[nodiscard]] std::string listing(const SmallHubFiles& files, const std::string& commit) const;
  [[nodiscard]] std::optional<std::string> fault_for(const std::string& line);

  // Defined in small_hub_upload.cpp. Each is called with the mutex held; answer_upload returns nothing if the request
  // is not part of an upload.
  [[nodiscard]] std::optional<std::string> answer_upload(const std::string& method, const std::string& path,
                                                         const std::string& body);
  [[nodiscard]] std::string create(const std::string& body);
  [[nodiscard]] std::string preupload(const Repo& repo, const std::string& branch, const std::string& body);
  [[nodiscard]] std::string batch(const std::string& body);
  [[nodiscard]] std::string commit(Repo& repo, const std::string& branch, const std::string& body);
  [[nodiscard]] std::string complete(const std::string& oid, const std::string& body);
  [[nodiscard]] std::string store(const LoopbackRequest& request);
  [[nodiscard]] std::int64_t cut_of(const LoopbackRequest& request);
  [[nodiscard]] std::string next_commit();

  std::map<std::string, Repo> repos_;
  std::mutex mutex_;
  std::string needed_token_;
  std::vector<std::string> requests_;
  std::vector<std::string> bodies_;
  std::vector<std::string> messages_;
  std::list<Fault> faults_;
  std::map<std::string, std::string> stored_;                         // oid -> content
  std::map<std::string, std::map<std::int64_t, std::string>> parts_;  // oid -> part, from 1
  bool storage_saw_token_ = false;
  int commits_ = 0;
  Loopback storage_{[this](const LoopbackRequest& request) { return store(request); },
                    [this](const LoopbackRequest& request) { return cut_of(request); }};
  Loopback server_{[this](const LoopbackRequest& request) { return answer(request); }};
};

// Returns the etag that the hub gives a file: the SHA-256 of an LFS file, the git object id of others.
[[nodiscard]] std::string small_hub_etag(const SmallHubFile& file);

}  // namespace hone::test
