// Large files of a repository on the hub: git LFS with the transfers basic and multipart.
// Source: https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md; multipart is the hub's own: the upload
// action's header holds chunk_size and a URL a part by its number, and its href takes the parts' etags when all are
// there.
#pragma once

#include <span>

#include "hub/cache.h"
#include "hub/hub_api.h"
#include "hub/transfer.h"
#include "hub/upload_file.h"

namespace hone {

// Stores the contents that the hub lacks and returns the bytes that were sent; what it has, from an earlier push that
// was interrupted say, is not sent again. A part that fails is sent again alone. Throws HubRefusal, Error, Interrupted.
std::int64_t upload_objects(const HubApi& api, const HubRepo& repo, std::span<const UploadFile> files,
                            TransferBar& bar);

}  // namespace hone
