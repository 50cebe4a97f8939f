// Uploads large files to the hub: git LFS with the basic and multipart transfers.
// Source: https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md. The multipart transfer is the hub's
// extension: the header of the upload action contains chunk_size and one URL for each part number, and its href takes
// the etags of the parts when all are uploaded.
#pragma once

#include <span>

#include "hub/cache.h"
#include "hub/hub_api.h"
#include "hub/transfer.h"
#include "hub/upload_file.h"

namespace hone {

// Uploads the contents that the hub lacks and returns the number of bytes sent. Contents that the hub already has, for
// example from an interrupted push, are not sent again. A failed part is retried alone. Throws HubRefusal, Error,
// Interrupted.
std::int64_t upload_objects(const HubApi& api, const HubRepo& repo, std::span<const UploadFile> files,
                            TransferBar& bar);

}  // namespace hone
