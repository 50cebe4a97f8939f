// Downloads from the Hugging Face hub into the hub's own cache, where Hugging Face's tools find the files too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "hub/cache.h"

namespace hone {

// A file of a repository.
struct HubFile {
  std::string path;        // path in the repository
  std::int64_t size = -1;  // bytes; -1: not in the listing
  std::string etag;        // SHA-256 of an LFS file, git's SHA-1 of any other; empty: not in the listing
};

// The files of one commit.
struct HubListing {
  std::string commit;
  std::vector<HubFile> files;  // sorted by path
};

// Lists the files of a revision. Throws Error: no such repository or revision, no access, offline, no connection.
[[nodiscard]] HubListing list_repo(const HubRepo& repo);

// Downloads the named files and returns the folder of the snapshot. A file is written to blobs/ETAG.incomplete, resumed
// where an earlier download stopped, verified against its checksum, and renamed. The links in the snapshot are created
// when all files are complete. A lost connection is retried five times. Throws Error.
[[nodiscard]] std::filesystem::path download(const HubRepo& repo, const HubListing& listing,
                                             std::span<const std::string> paths);

}  // namespace hone
