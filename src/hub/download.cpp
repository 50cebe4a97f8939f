#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/descriptor.h"
#include "core/digest.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/yaml.h"
#include "hub/http.h"
#include "hub/hub.h"
#include "hub/refusal.h"
#include "hub/transfer.h"
#include "hub/url.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr int kMostTries = 6;

[[noreturn]] void fail_system(const fs::path& path, std::string_view action) {
  const bool is_full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
  throw Error(
      path.string(), text_of(action, ": ", std::strerror(errno)),
      is_full ? "free some space, or set HF_HOME to another disk; a new download continues from the partial file" : "");
}

class OpenFile {
 public:
  OpenFile(const fs::path& path, int flags) : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (!descriptor_.open()) fail_system(path, "cannot be opened");
  }

  // Locks the file for one process at a time, in the same way as Hugging Face's libraries.
  void lock() const {
    while (::flock(descriptor_.number(), LOCK_EX) != 0) {
      if (errno != EINTR) fail_system(path_, "cannot be locked");
    }
  }
  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(::lseek(descriptor_.number(), 0, SEEK_END));
  }
  void truncate() const {
    if (::ftruncate(descriptor_.number(), 0) != 0 || ::lseek(descriptor_.number(), 0, SEEK_SET) != 0)
      fail_system(path_, "cannot be emptied");
  }
  void append(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_.number(), bytes.data(), bytes.size());
      if (written < 0 && errno != EINTR) fail_system(path_, "cannot write");
      if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }

 private:
  fs::path path_;
  Descriptor descriptor_;
};

std::string without_quotes(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  while (etag.starts_with('"')) etag.remove_prefix(1);
  while (etag.ends_with('"')) etag.remove_suffix(1);
  return std::string(etag);
}

// Returns true if the etag can name a blob. Hubs other than Hugging Face's may use etags that are not checksums.
bool is_blob_name(std::string_view etag) {
  return !etag.empty() && etag.size() <= 200 && etag.front() != '.' && std::ranges::all_of(etag, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

class Downloader {
 public:
  Downloader(const HubRepo& repo, const HubListing& listing, std::int64_t bytes)
      : repo_(repo),
        commit_(listing.commit),
        folder_(repo_folder(repo)),
        locks_(hub_cache() / ".locks" / folder_.filename()),
        token_(hub_token()),
        bar_("Downloading " + repo.name, bytes) {
    hone::create_directories(folder_ / "blobs");
    hone::create_directories(locks_);
  }

  // Downloads a file if necessary and returns the name of its blob.
  std::string fetch(HubFile file) {
    if (file.etag.empty()) ask_for_etag(file);
    const fs::path blob = folder_ / "blobs" / file.etag;
    const OpenFile lock(locks_ / (file.etag + ".lock"), O_RDWR | O_CREAT);
    lock.lock();
    if (is_file(blob)) {
      bar_.add(std::max<std::int64_t>(file.size, 0));
      return file.etag;
    }
    const fs::path partial = blob.string() + ".incomplete";
    const bool resumed = is_file(partial);
    fetch_into(partial, file);
    std::string wrong = fault_of(partial, file);
    if (!wrong.empty() && resumed) {  // the resumed part may be the damaged one
      remove_path(partial);
      fetch_into(partial, file);
      wrong = fault_of(partial, file);
    }
    if (!wrong.empty()) {
      remove_path(partial);
      throw Error(text_of(shown(repo_.name), " ", file.path), wrong, "try again; the partial file was deleted");
    }
    sync_path(partial);
    rename_path(partial, blob);
    return file.etag;
  }

 private:
  [[nodiscard]] std::string url_of(const HubFile& file) const {
    return text_of(hub_endpoint(), repo_.kind == RepoKind::kModel ? "/" : "/datasets/", repo_.name, "/resolve/",
                   commit_, "/", url_escaped(file.path));
  }

  void say_failed(const HubFile& file, const HttpAnswer& answer, std::string_view then) const {
    log_info(text_of(repo_.name, " ", file.path, ": ",
                     answer.failure.empty() ? text_of("the hub answers ", answer.status) : answer.failure, "; ", then));
  }

  void ask_for_etag(HubFile& file) const {
    HttpAnswer answer;
    for (int tries = 0; tries < kMostTries; ++tries) {
      answer = http_get({.url = url_of(file), .token = token_, .head = true, .take = {}});
      if (!is_passing(answer)) break;
      if (tries + 1 < kMostTries) {
        say_failed(file, answer, "retrying");
        pause_before_retry(tries);
      }
    }
    if (answer.status != 200 || !answer.failure.empty()) fail_refused(repo_, file.path, answer);
    const auto header = [&](const char* linked, const char* own) {
      const auto found = answer.headers.find(linked);
      const auto plain = answer.headers.find(own);
      return found != answer.headers.end() ? found->second : plain != answer.headers.end() ? plain->second : "";
    };
    file.etag = without_quotes(header("x-linked-etag", "etag"));
    if (!is_blob_name(file.etag))
      throw Error(text_of(shown(repo_.name), " ", file.path), "the hub's answer has no checksum (etag)");
  }

  // Appends the rest of a file to `partial`. The number of tries is limited only while no more bytes arrive.
  void fetch_into(const fs::path& partial, const HubFile& file) {
    const OpenFile out(partial, O_WRONLY | O_CREAT);
    bar_.add(out.size());
    std::int64_t furthest = -1;
    for (int tries = 0;; ++tries) {
      std::int64_t have = out.size();
      if (file.size >= 0 && have > file.size) {
        out.truncate();
        have = 0;
      }
      if (have == file.size) return;
      if (have > furthest) tries = 0;  // progress: reset the count of tries
      furthest = std::max(furthest, have);
      bool begun = false;
      const HttpAnswer answer = http_get({.url = url_of(file),
                                          .token = token_,
                                          .from = have,
                                          .most = file.size < 0 ? -1 : file.size,
                                          .take = [&](const HttpAnswer& so_far, std::string_view piece) {
                                            // 200 instead of 206: the hub sends the whole file again.
                                            if (!begun && so_far.status == 200 && have > 0) out.truncate();
                                            begun = true;
                                            out.append(piece);
                                            bar_.add(static_cast<std::int64_t>(piece.size()));
                                          }});
      const bool is_good = answer.status == 200 || answer.status == 206;
      if (is_good && answer.failure.empty()) return;
      if (answer.is_too_long) {
        throw Error(text_of(shown(repo_.name), " ", file.path),
                    text_of("is longer than the ", file.size, " bytes that the hub lists"));
      }
      if (answer.status == 416) {
        if (file.size < 0) return;  // the partial file is already complete
        out.truncate();
      } else if (!is_passing(answer)) {
        fail_refused(repo_, file.path, answer);
      }
      if (tries + 1 >= kMostTries) fail_refused(repo_, file.path, answer);
      say_failed(file, answer, text_of("continuing at ", format_bytes(static_cast<std::uint64_t>(out.size()))));
      pause_before_retry(tries);
    }
  }

  // Returns "" if size and checksum are correct, otherwise a description of the mismatch.
  static std::string fault_of(const fs::path& path, const HubFile& file) {
    const MappedFile content(path);
    const std::string_view text = content.text();
    if (file.size >= 0 && text.size() != static_cast<std::size_t>(file.size)) {
      return text_of("has ", text.size(), " bytes, the hub lists ", file.size);
    }
    const bool is_hexadecimal = file.etag.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!is_hexadecimal || (file.etag.size() != 64 && file.etag.size() != 40)) return "";
    std::string digest;
    if (file.etag.size() == 64) {
      Sha256 sha;
      sha.update(text);
      digest = sha.finish();
    } else {
      Sha1 sha;  // git's header and the content
      sha.update(text_of("blob ", text.size()));
      sha.update(std::string_view("\0", 1));
      sha.update(text);
      digest = sha.finish();
    }
    return digest == file.etag ? "" : text_of("its checksum is ", digest, ", the hub lists ", file.etag);
  }

  const HubRepo& repo_;
  std::string commit_;
  fs::path folder_;
  fs::path locks_;
  std::string token_;
  TransferBar bar_;
};

const HubFile& file_in(const HubListing& listing, const HubRepo& repo, const std::string& path) {
  const auto found = std::ranges::find(listing.files, path, &HubFile::path);
  if (found == listing.files.end()) throw Error(text_of(shown(repo.name), " ", path), "the hub has no such file");
  return *found;
}

// Creates a link in the snapshot to a blob, relative as in Hugging Face's libraries; replaces an existing one
// atomically.
void link_blob(const fs::path& snapshot, const std::string& path, const std::string& etag) {
  const fs::path link = snapshot / path;
  hone::create_directories(link.parent_path());
  fs::path target = "../..";
  for (auto depth = std::ranges::count(path, '/'); depth > 0; --depth) target /= "..";
  const fs::path fresh = text_of(link.string(), ".", ::getpid(), ".link");
  std::error_code error;
  fs::remove(fresh, error);
  fs::create_symlink(target / "blobs" / etag, fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (error) throw Error(link.string(), text_of("cannot create the link: ", error.message()));
}

}  // namespace

fs::path download(const HubRepo& repo, const HubListing& listing, std::span<const std::string> paths) {
  const fs::path folder = repo_folder(repo);
  std::int64_t bytes = 0;
  std::int64_t missing = 0;
  for (const std::string& path : paths) {
    const HubFile& file = file_in(listing, repo, path);
    bytes += std::max<std::int64_t>(file.size, 0);
    if (!is_file(folder / "blobs" / file.etag)) missing += std::max<std::int64_t>(file.size, 0);
  }
  hone::create_directories(folder);
  std::error_code ignored;
  const fs::space_info space = fs::space(folder, ignored);
  if (!ignored && space.available < static_cast<std::uintmax_t>(missing)) {
    throw Error(shown(repo.name),
                text_of("needs ", format_bytes(static_cast<std::uint64_t>(missing)), " in ", folder.string(),
                        ", where ", format_bytes(space.available), " are free"),
                "free some space, or set HF_HOME to another disk");
  }
  Downloader downloader(repo, listing, bytes);
  std::vector<std::string> etags;
  for (const std::string& path : paths) etags.push_back(downloader.fetch(file_in(listing, repo, path)));

  fs::path snapshot = folder / "snapshots" / listing.commit;
  for (std::size_t i = 0; i < paths.size(); ++i) link_blob(snapshot, paths[i], etags[i]);
  if (repo.revision != listing.commit) {
    const fs::path reference = folder / "refs" / repo.revision;
    hone::create_directories(reference.parent_path());
    write_file(reference, listing.commit);
  }
  return snapshot;
}

}  // namespace hone
