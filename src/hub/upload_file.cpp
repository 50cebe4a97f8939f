#include "hub/upload_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "core/descriptor.h"
#include "core/digest.h"
#include "core/error.h"
#include "core/interrupt.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // bytes read at a time

}  // namespace

struct UploadFile::Content {
  fs::path file;  // empty: the content is in `text`
  std::string text;
  Descriptor descriptor;
  std::int64_t size = 0;
  std::string sha256;  // empty: not computed yet

  void for_each_piece(const UploadFile& of, const std::function<void(std::string_view)>& take) const {
    std::vector<char> piece(static_cast<std::size_t>(std::min(size, kPiece)));
    for (std::int64_t at = 0; at < size;) {
      throw_if_interrupted();
      const std::span<char> part(piece.data(), static_cast<std::size_t>(std::min(size - at, kPiece)));
      of.read(at, part);
      take({part.data(), part.size()});
      at += static_cast<std::int64_t>(part.size());
    }
  }
};

UploadFile::UploadFile(std::string path, const fs::path& file)
    : path_(std::move(path)), content_(std::make_shared<Content>()) {
  content_->file = file;
  content_->descriptor = Descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status{};
  if (!content_->descriptor.open() || ::fstat(content_->descriptor.number(), &status) != 0) {
    throw Error(file.string(), text_of("cannot open: ", std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) throw Error(file.string(), "is not a regular file");
  content_->size = status.st_size;
}

UploadFile::UploadFile(std::string path, std::string content)
    : path_(std::move(path)), content_(std::make_shared<Content>()) {
  content_->size = static_cast<std::int64_t>(content.size());
  content_->text = std::move(content);
}

UploadFile::UploadFile(std::string path, std::shared_ptr<Content> content)
    : path_(std::move(path)), content_(std::move(content)) {}

UploadFile UploadFile::at(std::string path) const { return {std::move(path), content_}; }

std::int64_t UploadFile::size() const { return content_->size; }

void UploadFile::read(std::int64_t offset, std::span<char> out) const {
  if (!content_->descriptor.open()) {
    HONE_ASSERT(offset + std::ssize(out) <= content_->size, "read beyond the end of ", path_);
    std::copy_n(content_->text.begin() + offset, out.size(), out.begin());
    return;
  }
  while (!out.empty()) {
    const ssize_t got = ::pread(content_->descriptor.number(), out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(content_->file.string(), text_of("cannot read: ", std::strerror(errno)));
    if (got == 0) throw Error(content_->file.string(), "became shorter while it was pushed", "push it again");
    out = out.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

std::string UploadFile::content() const {
  std::string all(static_cast<std::size_t>(size()), '\0');
  read(0, all);
  return all;
}

const std::string& UploadFile::sha256() const {
  if (content_->sha256.empty()) {
    Sha256 sha;
    content_->for_each_piece(*this, [&](std::string_view piece) { sha.update(piece); });
    content_->sha256 = sha.finish();
  }
  return content_->sha256;
}

std::string UploadFile::git_sha1() const {
  Sha1 sha;
  sha.update(text_of("blob ", size()));
  sha.update(std::string_view("\0", 1));
  content_->for_each_piece(*this, [&](std::string_view piece) { sha.update(piece); });
  return sha.finish();
}

}  // namespace hone
