// Downloads from the Hugging Face hub into its cache, so that Hugging Face's own tools find what hone has fetched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "hub/cache.h"

namespace hone {

struct HubFile {
  std::string path;        // in the repository
  std::int64_t size = -1;  // -1: the listing did not say
  std::string etag;        // of an LFS file its SHA-256, of others git's SHA-1; empty: the listing did not say
};

struct HubListing {
  std::string commit;
  std::vector<HubFile> files;  // sorted by path
};

// The files of a revision. Throws Error: no such repository or revision, no access, offline, no connection.
[[nodiscard]] HubListing list_repo(const HubRepo& repo);

// Fetches the named files and returns the folder of the snapshot. A file is written to blobs/ETAG.incomplete, goes on
// where an earlier download stopped, is checked against its checksum and renamed; links in the snapshot are made when
// all files are there. A connection that is lost is tried again five times. Throws Error.
[[nodiscard]] std::filesystem::path download(const HubRepo& repo, const HubListing& listing,
                                             std::span<const std::string> paths);

}  // namespace hone
